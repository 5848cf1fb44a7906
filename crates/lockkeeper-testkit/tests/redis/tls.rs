//! TLS to a real server: who is let in, who is believed, and what is said about the rest.

use std::time::Duration;

use crate::common::*;
use lockkeeper::Error;
use lockkeeper::clock::Moment;
use lockkeeper::store::{Mode, Store};
use lockkeeper_testkit::servers::certificates::{Authority, Identity};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

const HERE: [&str; 3] = ["127.0.0.1", "localhost", "::1"];

fn server(identity: Identity) -> RedisServer {
    RedisServer::start_with(RedisOptions {
        tls: Some(identity),
        ..RedisOptions::default()
    })
}

async fn works(url: &str) {
    let store = open(url).await;
    let held = claim("over tls", Mode::Exclusive);
    granted(&store, &held).await;
    assert_eq!(release(&store, &held).await, Ok(true));
}

/// The text of the error that connecting ends with. It is one that does not pass by itself.
async fn refusal(url: &str) -> String {
    let error = connect(url).await.expect_err(url);
    assert!(matches!(error, Error::Refused { .. }), "{url}: {error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_a_known_authority_is_believed() {
    let authority = Authority::new();
    let server = server(authority.issue("server", &HERE));
    let ca = authority.ca();
    works(&format!("{}?ca={}", server.url(), ca.display())).await;
    let by_name = format!("rediss://localhost:{}", server.port());
    works(&format!("{by_name}?ca={}", ca.display())).await;
    works(&format!("{}?insecure=yes", server.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_be_believed_is_refused_with_the_reason() {
    let authority = Authority::new();
    let ca = authority.ca();
    let known = server(authority.issue("server", &HERE));
    // Neither the system nor another authority knows it.
    let text = refusal(&known.url()).await;
    assert!(text.contains("ca=PATH"), "{text}");
    let other = Authority::new().ca();
    let text = refusal(&format!("{}?ca={}", known.url(), other.display())).await;
    assert!(
        text.contains("cannot be read"),
        "its folder is gone: {text}"
    );
    let other = Authority::new();
    let text = refusal(&format!("{}?ca={}", known.url(), other.ca().display())).await;
    assert!(text.contains("not trusted"), "{text}");
    let old = server(authority.issue_until("old", &HERE, 2020));
    let text = refusal(&format!("{}?ca={}", old.url(), ca.display())).await;
    assert!(text.contains("expired"), "{text}");
    let elsewhere = server(authority.issue("elsewhere", &["db.example"]));
    let text = refusal(&format!("{}?ca={}", elsewhere.url(), ca.display())).await;
    assert!(text.contains("not for 127.0.0.1"), "{text}");
    assert!(text.contains("db.example"), "{text}");
    // A client that asks for it gets in all the same.
    works(&format!("{}?insecure=yes", elsewhere.url())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_may_ask_for_our_certificate() {
    let authority = Authority::new();
    let ours = authority.issue("client", &[]);
    let server = RedisServer::start_with(RedisOptions {
        tls: Some(authority.issue("server", &HERE)),
        clients_of: Some(authority.ca()),
        ..RedisOptions::default()
    });
    let url = format!("{}?ca={}", server.url(), authority.ca().display());
    let with = |who: &Identity| {
        let (cert, key) = (who.cert.display(), who.key.display());
        format!("{url}&cert={cert}&key={key}")
    };
    works(&with(&ours)).await;
    let text = refusal(&url).await;
    assert!(text.contains("cert=PATH"), "{text}");
    let stranger = Authority::new();
    let text = refusal(&with(&stranger.issue("stranger", &[]))).await;
    assert!(text.contains("refuses our certificate"), "{text}");
    let mixed = Identity {
        key: stranger.issue("mixed", &[]).key,
        ..ours.clone()
    };
    let text = refusal(&with(&mixed)).await;
    assert!(text.contains("do not go together"), "{text}");
    let missing = Identity {
        cert: "/no/such/file.pem".into(),
        ..ours
    };
    let text = refusal(&with(&missing)).await;
    assert!(text.contains("/no/such/file.pem"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_one_of_redis_and_rediss_is_told() {
    let authority = Authority::new();
    let secure = server(authority.issue("server", &HERE));
    let text = refusal(&format!("redis://127.0.0.1:{}", secure.port())).await;
    assert!(text.contains("speaks TLS"), "{text}");
    let plain = RedisServer::start();
    let before = Moment::now();
    let text = refusal(&format!("rediss://127.0.0.1:{}", plain.port())).await;
    assert!(text.contains("does not speak TLS"), "{text}");
    assert!(Moment::now().since(before) < Duration::from_secs(5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_taken_up_at_the_next_connection() {
    let authority = Authority::new();
    let mut server = server(authority.issue("server", &HERE));
    let store = open(&format!("{}?ca={}", server.url(), authority.ca().display())).await;
    granted(&store, &claim("kept", Mode::Exclusive)).await;
    // The server comes back with a certificate of another authority, and the file says so.
    let next = Authority::new();
    let fresh = next.issue("server", &HERE);
    let old = authority.issue("server", &HERE);
    std::fs::copy(&fresh.cert, &old.cert).expect("copies");
    std::fs::copy(&fresh.key, &old.key).expect("copies");
    std::fs::copy(next.ca(), authority.ca()).expect("copies");
    server.restart();
    until("it is believed again", async || {
        store.inspect(&name("anything")).await.is_ok()
    })
    .await;
}
