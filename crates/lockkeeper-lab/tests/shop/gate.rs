//! Which requests are let in: a sale is a mere GET, which any site that a browser has open could ask for.

use lockkeeper_lab::shop::lock::LockKind;
use lockkeeper_lab::shop::{Instance, ROUTES, ServeOptions};

use crate::common::{bare, finish};
use crate::scene::{Place, account, ask, ask_with, start};

#[track_caller]
fn refused(shop: &Instance, headers: &[(&str, &str)], word: &str) {
    let others = ["/health", "/stats", "/openapi.json", "/nothing"].map(|path| ("GET", path));
    let routes = ROUTES.iter().map(|route| (route.method, route.path));
    for (method, path) in routes.chain(others) {
        let answer = ask_with(shop, method, path, headers, "");
        assert_eq!(answer.status, 403, "{headers:?}: {answer:?}");
        let json = answer.json();
        assert_eq!(json["result"], "invalid", "{answer:?}");
        let message = json["message"].as_str().unwrap_or_default();
        assert!(message.contains(word), "{message:?} says {word:?}");
    }
}

fn sold(shop: &Instance, headers: &[(&str, &str)]) {
    let answer = ask_with(shop, "GET", "/inventory/sale", headers, "");
    assert_eq!(answer.json()["result"], "sold", "{headers:?}: {answer:?}");
}

#[test]
fn other_sites_and_other_names_are_refused_and_sell_nothing() {
    let place = Place::new();
    let shop = start(&place.options(LockKind::None));
    let port = shop.opened().port;
    // Names that somebody made to point here.
    for host in [
        "evil.example",
        &format!("evil.example:{port}"),
        "127.0.0.1.evil.example",
        "192.0.2.7",
        "",
    ] {
        refused(&shop, &[("Host", host)], "--host");
    }
    refused(
        &shop,
        &[("Host", "localhost"), ("Host", "localhost")],
        "--host",
    );
    // What a page of another site has a browser ask for: an image, a form, a fetch, a link.
    for site in ["cross-site", "same-site"] {
        for mode in ["no-cors", "cors", "navigate"] {
            let headers = [("Sec-Fetch-Site", site), ("Sec-Fetch-Mode", mode)];
            refused(&shop, &headers, "another site");
        }
    }
    for origin in [
        "http://evil.example",
        "null",
        "https://localhost",
        "http://localhost:1",
        "",
    ] {
        refused(&shop, &[("Origin", origin)], "another site");
    }
    // As browsers ask for an image by plain HTTP, unless it is of the machine they run on.
    let browser = ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit");
    refused(&shop, &[browser], "browser");
    refused(&shop, &[browser, ("User-Agent", "curl")], "browser");
    refused(
        &shop,
        &[browser, ("Referer", "http://127.0.0.1/")],
        "browser",
    );
    for item in ["inventory001", "1001", "good:1", "good:2"] {
        assert_eq!(account(&shop, item)["sales"], 0, "{item}");
    }
}

#[test]
fn programs_and_typed_addresses_are_served() {
    let place = Place::new();
    let shop = start(&place.options(LockKind::Mutex));
    let address = shop.url().trim_start_matches("http://").to_owned();
    for host in [
        "localhost",
        "LocalHost:80",
        "127.0.0.1",
        "[::1]:8080",
        &address,
    ] {
        sold(&shop, &[("Host", host)]);
        let origin = format!("http://{host}");
        sold(&shop, &[("Host", host), ("Origin", &origin)]);
    }
    for site in ["none", "same-origin"] {
        sold(&shop, &[("Sec-Fetch-Site", site)]);
        let browser = ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)");
        sold(&shop, &[("Sec-Fetch-Site", site), browser]);
    }
    let url = format!("{}/inventory/sale", shop.url());
    let curl = std::process::Command::new("curl")
        .args(["-s", &url])
        .output();
    if let Ok(curl) = curl {
        let text = String::from_utf8_lossy(&curl.stdout);
        assert!(text.contains("\"sold\""), "{text}");
    }
    let load = ["shop", "load", "--requests", "20", shop.url()];
    finish(&mut bare(&load)).code(0);
    let by_name = shop.url().replace("127.0.0.1", "localhost");
    finish(&mut bare(&["shop", "load", "--requests", "20", &by_name])).code(0);
    // Where there is IPv6.
    let listen: std::net::SocketAddr = (std::net::Ipv6Addr::LOCALHOST, 0).into();
    if std::net::TcpListener::bind(listen).is_ok() {
        let options = ServeOptions {
            listen,
            ..place.options(LockKind::Mutex)
        };
        let shop = start(&options);
        let load = ["shop", "load", "--requests", "20", shop.url()];
        finish(&mut bare(&load)).code(0);
    }
}

#[test]
fn a_name_that_was_allowed_is_answered() {
    let place = Place::new();
    let options = ServeOptions {
        hosts: vec!["shop.example".into()],
        ..place.options(LockKind::None)
    };
    let shop = start(&options);
    sold(&shop, &[("Host", "shop.example")]);
    sold(
        &shop,
        &[
            ("Host", "Shop.Example:8080"),
            ("Origin", "http://Shop.Example:8080"),
        ],
    );
    refused(&shop, &[("Host", "other.example")], "--host");
    refused(
        &shop,
        &[("Host", "shop.example"), ("Origin", "http://other.example")],
        "another site",
    );
    assert_eq!(ask(&shop, "GET", "/health", "").status, 200);
    for name in ["", "http://shop.example", "shop.example:80", "a b"] {
        finish(&mut bare(&[
            "shop", "serve", "--listen", "0", "--host", name,
        ]))
        .code(2);
    }
}
