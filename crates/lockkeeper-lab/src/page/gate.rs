//! Which requests are let in. The page starts processes, so no other site that a browser has open may use it.
//!
//! - A host that is a name other than `localhost` may have been made to point here by its owner (DNS rebinding):
//!   only addresses and `localhost` are answered.
//! - Actions need an `Origin`, which browsers add by themselves and no page can change, and it has to be ours.
//! - Nothing of ours is shown within another site's page, or runs what is not ours.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// What goes with every answer.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (header::CACHE_CONTROL, "no-store"),
];

/// Lets a request in, or answers why not.
pub async fn gate(State(only_loopback): State<bool>, request: Request, next: Next) -> Response {
    let asked = (request.method(), request.uri(), request.headers());
    let mut response = match check(asked, only_loopback) {
        Ok(()) => next.run(request).await,
        Err(reason) => (StatusCode::FORBIDDEN, format!("{reason}\n")).into_response(),
    };
    for (name, value) in HEADERS {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    response
}

fn check(
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    only_loopback: bool,
) -> Result<(), &'static str> {
    let text = |name: &str| only(headers, name);
    let host = text("host").unwrap_or_default();
    let other = uri.authority().is_some_and(|other| other != host);
    if other || !is_ours(host, only_loopback) {
        return Err(
            "this page answers to its address and to localhost only; open the address that was printed",
        );
    }
    if method == Method::GET || method == Method::HEAD {
        // An address that was typed, or ours, or a link from elsewhere, but nothing that a site fetches behind one's back.
        let link = text("sec-fetch-mode") == Some("navigate");
        return match text("sec-fetch-site") {
            Some("cross-site" | "same-site") if !link => Err("this page answers to itself only"),
            _ => Ok(()),
        };
    }
    match text("origin") {
        Some(origin) if origin.strip_prefix("http://") == Some(host) => Ok(()),
        _ => Err(
            "actions are for this page alone: the origin is missing, or another; use `lockkeeper lab run`",
        ),
    }
}

/// The value of a header. What is there twice is read differently by others, perhaps by a proxy between.
pub fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let only = values.next().filter(|_| values.next().is_none());
    only.and_then(|value| value.to_str().ok())
}

/// The name in a `Host`, without its port, which may be that of a tunnel.
pub fn host_name(host: &str) -> Option<&str> {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, port),
        _ => (host, "80"),
    };
    port.parse::<u16>().is_ok().then_some(name)
}

/// Whether a `Host` cannot be somebody else's name.
pub fn is_ours(host: &str, only_loopback: bool) -> bool {
    let Some(name) = host_name(host) else {
        return false;
    };
    if name.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let bracketed = name
        .strip_prefix('[')
        .and_then(|name| name.strip_suffix(']'));
    let address: Option<IpAddr> = match bracketed {
        Some(v6) => v6.parse().ok().map(IpAddr::V6),
        None => name.parse().ok().map(IpAddr::V4),
    };
    address.is_some_and(|address| !only_loopback || address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_nobody_else_can_be_called_is_ours() {
        for host in [
            "localhost",
            "LocalHost:7420",
            "127.0.0.1:7420",
            "127.8.0.1:1",
            "[::1]:7420",
            "[::1]",
        ] {
            assert!(is_ours(host, true), "{host}");
        }
        for host in [
            "",
            ":",
            "evil.example",
            "evil.example:7420",
            "localhost.evil.example:7420",
            "127.0.0.1.evil.example:7420",
            "127.0.0.1@evil.example",
            "192.168.1.7:7420",
            "[::1",
            "::1",
            "[::1]:x",
            "127.0.0.1:99999",
            "2130706433",
        ] {
            assert!(!is_ours(host, true), "{host}");
        }
        assert!(is_ours("192.168.1.7:7420", false));
        assert!(!is_ours("evil.example:7420", false));
    }

    fn checked(method: &Method, headers: &[(&'static str, &'static str)]) -> bool {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        check((method, &Uri::from_static("/"), &map), true).is_ok()
    }

    #[test]
    fn who_names_two_hosts_names_none() {
        let ours = ("host", "localhost:7420");
        assert!(!checked(&Method::GET, &[ours, ("host", "evil.example")]));
        assert!(!checked(&Method::GET, &[ours, ours]));
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static(ours.1));
        let get = |uri| check((&Method::GET, &Uri::from_static(uri), &headers), true).is_ok();
        assert!(get("/") && get("http://localhost:7420/"));
        assert!(!get("http://evil.example/"));
    }

    #[test]
    fn actions_are_for_our_origin() {
        let host = ("host", "localhost:7420");
        let post = |origin| checked(&Method::POST, &[host, ("origin", origin)]);
        assert!(post("http://localhost:7420"));
        for origin in [
            "null",
            "http://localhost",
            "http://localhost:7421",
            "https://localhost:7420",
            "http://127.0.0.1:7420",
            "http://evil.example",
            "",
        ] {
            assert!(!post(origin), "{origin}");
        }
        assert!(!checked(&Method::POST, &[host]));
        assert!(!checked(&Method::DELETE, &[host]));
    }

    #[test]
    fn other_sites_may_link_to_us_and_nothing_else() {
        let host = ("host", "localhost:7420");
        let get = |site, mode| {
            let headers = [host, ("sec-fetch-site", site), ("sec-fetch-mode", mode)];
            checked(&Method::GET, &headers)
        };
        assert!(get("none", "navigate") && get("same-origin", "cors"));
        assert!(get("cross-site", "navigate"));
        assert!(!get("cross-site", "cors") && !get("cross-site", "no-cors"));
        assert!(!get("same-site", "cors"));
        assert!(checked(&Method::GET, &[host]));
    }
}
