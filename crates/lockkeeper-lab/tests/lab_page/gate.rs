//! Which requests are let in.

use crate::common::{Place, bare, finish};
use crate::http::{Response, ask};
use crate::lab::Lab;

const RUN: &str = "/api/lab/1/run";

fn refused(answer: &Response, word: &str) {
    assert_eq!(answer.status, 403, "{answer:?}");
    assert!(answer.text().contains(word), "{answer:?}");
}

#[test]
fn actions_are_refused_to_other_origins_and_other_names() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let ours = lab.url("");
    let other_port = format!("http://127.0.0.1:{}", lab.port.wrapping_add(1));
    for path in [RUN, "/api/lab/run", "/api/lab/cancel", "/api/lab/1/cancel"] {
        for origin in [
            "http://evil.example",
            "null",
            &other_port,
            "https://127.0.0.1",
        ] {
            let answer = ask(lab.port, "POST", path, &[("Origin", origin)], "");
            refused(&answer, "for this page alone");
        }
        refused(&ask(lab.port, "POST", path, &[], ""), "for this page alone");
        // A name that somebody made to point here, and the origin that goes with it.
        let rebound = format!("evil.example:{}", lab.port);
        let origin = format!("http://{rebound}");
        let headers = [("Host", rebound.as_str()), ("Origin", origin.as_str())];
        refused(&ask(lab.port, "POST", path, &headers, ""), "its address");
    }
    for path in [
        "/",
        "/api/lab",
        "/api/lab/events",
        "/api/locks/events",
        "/main.js",
    ] {
        refused(
            &ask(lab.port, "GET", path, &[("Host", "evil.example")], ""),
            "its address",
        );
        let fetched = [
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Mode", "no-cors"),
        ];
        refused(&ask(lab.port, "GET", path, &fetched, ""), "itself only");
    }
    assert!(lab.descendants().is_empty(), "nothing was started");
    // Ours are not.
    for (path, status) in [
        ("/api/lab/0/run", 404),
        ("/api/lab/%2e%2e/run", 404),
        (RUN, 204),
    ] {
        let answer = ask(lab.port, "POST", path, &[("Origin", &ours)], "");
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    // What starts something does not do so by a mere link.
    assert_eq!(ask(lab.port, "GET", RUN, &[], "").status, 405);
}

#[test]
fn every_answer_forbids_what_the_page_does_not_need() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    for path in ["/", "/style.css", "/main.js", "/api/lab", "/nothing"] {
        let answer = ask(lab.port, "GET", path, &[], "");
        let policy = answer.header("Content-Security-Policy").unwrap_or_default();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{answer:?}"
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert_eq!(answer.header("X-Content-Type-Options"), Some("nosniff"));
        assert_eq!(answer.header("Access-Control-Allow-Origin"), None);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_advice() {
    finish(&mut bare(&["lab", "--open", "list"]))
        .code(2)
        .says("without a verb");
    finish(&mut bare(&["lab", "--store", "redis://:canary@127.0.0.1/"]))
        .code(2)
        .says("everyone on this machine can see the password");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let place = Place::new();
    finish(&mut place.lab(&["lab", "--listen", &port]))
        .code(69)
        .says("cannot listen on 127.0.0.1");
}
