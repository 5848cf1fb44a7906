//! Which requests are let in. A sale is a mere GET, so any site that a browser has open could ask for one.
//!
//! - A host that is a name may have been made to point here by its owner (DNS rebinding): only addresses, `localhost` and
//!   names that were allowed are answered.
//! - Browsers say by themselves, in `Origin` and `Sec-Fetch-Site`, when another site asks. Other programs send neither.
//! - By plain HTTP, browsers send `Sec-Fetch-Site` to the machine that they run on only, and no `Origin` for an image. So a
//!   browser that sends neither is refused, also one in which somebody typed the address.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::Response;

use super::answer::Answer;
use crate::page::gate::{host_name, is_ours, only};

/// Which hosts are ours.
#[derive(Debug)]
pub struct Gate {
    /// The instance's own port, which answers name.
    pub port: u16,
    /// Whether other machines cannot reach us.
    pub only_loopback: bool,
    /// Names that were allowed.
    pub hosts: Vec<String>,
}

/// Lets a request in, or answers why not.
pub async fn gate(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    match gate.check(request.uri(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(reason) => Answer::invalid(gate.port, reason).with(StatusCode::FORBIDDEN),
    }
}

impl Gate {
    fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), &'static str> {
        let host = only(headers, "host").unwrap_or_default();
        let other = uri.authority().is_some_and(|other| other != host);
        if other || !self.is_ours(host) {
            return Err(
                "the shop answers to its address and to localhost only; use these, or start it with --host NAME",
            );
        }
        let elsewhere = headers.contains_key("origin") && {
            let origin = only(headers, "origin").and_then(|origin| origin.strip_prefix("http://"));
            origin != Some(host)
        };
        let mut agents = headers.get_all("user-agent").iter();
        let browser = agents.any(|agent| agent.as_bytes().starts_with(b"Mozilla/"));
        let says = headers.contains_key("origin") || headers.contains_key("sec-fetch-site");
        if browser && !says {
            return Err(
                "this browser does not say which site asks; use localhost, https, or a program such as curl",
            );
        }
        let site = only(headers, "sec-fetch-site");
        let foreign =
            headers.contains_key("sec-fetch-site") && !matches!(site, Some("none" | "same-origin"));
        if elsewhere || foreign {
            Err("another site asked for this; type the address, or use a program such as curl")
        } else {
            Ok(())
        }
    }

    fn is_ours(&self, host: &str) -> bool {
        let named = |name: &str| {
            self.hosts
                .iter()
                .any(|known| known.eq_ignore_ascii_case(name))
        };
        is_ours(host, self.only_loopback) || host_name(host).is_some_and(named)
    }
}
