//! The shop and clients that mean no good.

use std::net::SocketAddr;
use std::process::Stdio;

use lockkeeper_lab::shop::lock::LockKind;

use crate::common::crowd::{nonsense, said, silent, status, with_files};
use crate::common::{bare, finish};
use crate::scene::{Place, account, ask, start};

#[test]
fn those_who_connect_and_say_nothing_do_not_keep_customers_out() {
    let place = Place::new();
    let stock = place.stock();
    let mut serve = bare(&[
        "shop", "serve", "--listen", "0", "--stock", &stock, "--json",
    ]);
    serve.env("LOCKKEEPER_STORE", place.store());
    let mut shop = with_files(200, &serve)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let opened = crate::common::first_line(&mut shop);
    let opened: serde_json::Value = serde_json::from_str(&opened).expect("it opens");
    let url = opened["url"].as_str().expect("an address");
    let address: SocketAddr = url.trim_start_matches("http://").parse().expect("one");
    let crowd = silent(address, 250);
    let buy = b"GET /inventory/sale HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = said(address, buy);
    assert!(answer.contains("\"sold\""), "{answer}");
    drop(crowd);
    shop.kill().expect("it runs");
    shop.wait().expect("it ends");
}

#[test]
fn what_is_no_request_sells_nothing() {
    let place = Place::new();
    let shop = start(&place.options(LockKind::None));
    let address: SocketAddr = shop
        .url()
        .trim_start_matches("http://")
        .parse()
        .expect("one");
    for (request, statuses) in nonsense("localhost") {
        let answer = said(address, &request);
        let told = status(&answer);
        let fits = told.map_or(statuses.is_empty(), |told| statuses.contains(&told));
        assert!(
            fits,
            "{statuses:?}, not {answer:?}, for {:?}",
            &request[..request.len().min(60)]
        );
    }
    // A body that never comes.
    let promise =
        b"POST /redisLock/saleGoods HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{";
    let answer = said(address, promise);
    assert_eq!(status(&answer), Some(408), "{answer}");
    assert!(answer.contains("\"invalid\""), "{answer}");
    for item in ["inventory001", "good:1"] {
        assert_eq!(account(&shop, item)["sales"], 0);
    }
    assert_eq!(ask(&shop, "GET", "/health", "").status, 200);
}

#[test]
fn more_customers_than_this_process_can_have_are_refused_at_once() {
    let load = ["shop", "load", "--concurrency", "500", "http://127.0.0.1:1"];
    finish(&mut with_files(200, &bare(&load)))
        .code(2)
        .says("ulimit -n");
}

/// A server that has books and nothing else to say: what it answers is no sale, and nothing is proved by it.
#[test]
fn load_believes_nothing_that_is_no_answer() {
    use std::io::{Read, Write};
    let books = r#"{"accounts": [{"item": "inventory001", "opening": 9, "stock": 9, "sales": 0}]}"#;
    let long = "x".repeat(64 << 20);
    let answers: [(&str, &str); 5] = [
        ("garbage", "\0\u{1}\r\n\r\n"),
        ("nothing", ""),
        (
            "a page",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<!DOCTYPE",
        ),
        (
            "half",
            "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{\"result\": \"sold\"",
        ),
        (
            "no end",
            &format!("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n{long}"),
        ),
    ];
    for (what, answer) in answers {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let answer = answer.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let mut request = [0; 1_024];
                let read = stream.read(&mut request).unwrap_or(0);
                let said = if request[..read].starts_with(b"GET /stats") {
                    format!(
                        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{books}",
                        books.len()
                    )
                } else {
                    answer.clone()
                };
                let _ = stream.write_all(said.as_bytes());
            }
        });
        let load = [
            "shop",
            "load",
            "--requests",
            "6",
            "--concurrency",
            "2",
            "--json",
            &url,
        ];
        let done = finish(&mut bare(&load)).code(69);
        assert!(done.err().contains("is not known"), "{what}: {done:?}");
        let json = done.json();
        assert_eq!(
            (&json["unknown"], &json["sold"]),
            (&6.into(), &0.into()),
            "{what}: {json}"
        );
    }
}
