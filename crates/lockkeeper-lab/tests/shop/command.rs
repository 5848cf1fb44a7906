//! The verbs: exit codes, what they print, what they refuse, and that no password is seen.

use std::process::{Child, Stdio};

use lockkeeper_lab::shop::ServeOptions;
use lockkeeper_lab::shop::lock::LockKind;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::{bare, finish, first_line, until};
use crate::scene::{Place, account, ask, start, start_many, urls};

const CANARY: &str = "c4n4ry-pa55";

/// Starts `shop serve` by hand; answers its first line too.
fn serve(place: &Place, args: &[&str]) -> (Child, String) {
    let stock = place.stock();
    let args = [&["shop", "serve", "--listen", "0", "--stock", &stock], args].concat();
    let mut child = bare(&args)
        .env("LOCKKEEPER_STORE", place.store())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let line = first_line(&mut child);
    (child, line)
}

#[test]
fn serve_prints_its_address_and_ends_well_when_told() {
    let place = Place::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (mut child, line) = serve(&place, &[]);
        assert!(line.contains("http://127.0.0.1:"), "{line:?}");
        let url = line.split(' ').find(|word| word.starts_with("http://"));
        let address = url.expect("a URL").trim_start_matches("http://");
        // Someone who stays connected and says nothing does not keep it open.
        let _idle = std::net::TcpStream::connect(address).expect("it listens");
        let pid = Pid::from_raw(child.id().cast_signed());
        kill(pid, signal).expect("it is there");
        assert_eq!(child.wait().expect("it ends").code(), Some(0));
    }
}

/// As a script's shell starts it with `&`.
#[test]
fn started_to_ignore_int_it_does_and_ends_by_term() {
    let place = Place::new();
    let stock = place.stock();
    let mut child = std::process::Command::new("sh")
        .args(["-c", "trap '' INT; exec \"$0\" \"$@\""])
        .arg(bare(&[]).get_program())
        .args(["shop", "serve", "--listen", "0", "--lock", "none", "--json"])
        .args(["--stock", &stock])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let opened: serde_json::Value = serde_json::from_str(&first_line(&mut child)).expect("JSON");
    let pid = Pid::from_raw(child.id().cast_signed());
    kill(pid, Signal::SIGINT).expect("it is there");
    let address = opened["url"].as_str().expect("a URL");
    let address = address.trim_start_matches("http://").parse();
    let ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = crate::common::crowd::said(address.expect("an address"), ask);
    assert!(answer.contains("200 OK"), "{answer}");
    kill(pid, Signal::SIGTERM).expect("it is there");
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn an_instance_ends_with_whoever_started_it() {
    let place = Place::new();
    let mut shop = start(&place.options(place.lock()));
    assert_eq!(ask(&shop, "GET", "/health", "").status, 200);
    assert!(shop.close().expect("it ends"));
}

#[test]
fn a_customer_who_is_in_when_the_shop_closes_is_served() {
    let place = Place::new();
    let shop = start(&ServeOptions {
        work: std::time::Duration::from_secs(1),
        ..place.options(place.lock())
    });
    let keeper = lockkeeper::blocking::Lockkeeper::connect(&place.store()).expect("a store");
    std::thread::scope(|scope| {
        let sale = scope.spawn(|| ask(&shop, "GET", "/inventory/sale", ""));
        until("the sale is under way", || {
            let info = keeper.inspect("shop:inventory001").expect("answers");
            info.is_some_and(|info| !info.holders.is_empty())
        });
        let pid = Pid::from_raw(shop.pid().cast_signed());
        kill(pid, Signal::SIGTERM).expect("it is there");
        let sale = sale.join().expect("an answer");
        assert_eq!(sale.json()["result"], "sold", "{sale:?}");
    });
    // Nothing of it is left in the way of others.
    until("the lock is free", || {
        let info = keeper.inspect("shop:inventory001").expect("answers");
        info.is_none_or(|info| info.holders.is_empty())
    });
}

#[test]
fn the_usual_stock_is_in_the_state_folder() {
    let place = Place::new();
    let mut reset = bare(&["shop", "reset"]);
    reset
        .env("HOME", place.path(""))
        .env_remove("XDG_STATE_HOME");
    finish(reset.env_remove("LOCKKEEPER_SHOP_STOCK")).code(0);
    let stock = if cfg!(target_os = "macos") {
        "Library/Application Support/lockkeeper/shop.db"
    } else {
        ".local/state/lockkeeper/shop.db"
    };
    assert!(place.path(stock).exists());
}

#[test]
fn a_stock_in_a_folder_that_is_not_there_is_refused_and_nothing_is_made() {
    let place = Place::new();
    let stock = format!("sqlite:{}", place.path("nosuch/shop.db").display());
    for args in [
        &["shop", "reset", "--stock", &stock][..],
        &[
            "shop", "serve", "--listen", "0", "--lock", "none", "--stock", &stock,
        ],
    ] {
        let done = finish(&mut bare(args)).code(69);
        done.says("does not exist; create it");
        assert!(!place.path("nosuch").exists());
    }
    // One that is named from where we are has its folder.
    let mut here = bare(&["shop", "reset", "--stock", "sqlite:shop.db"]);
    finish(here.current_dir(place.path(""))).code(0);
    assert!(place.path("shop.db").exists());
}

#[test]
fn what_cannot_be_served_is_told() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken.local_addr().expect("an address").to_string();
    std::fs::write(place.path("text"), "not a database at all, only text").expect("writes");
    let text = format!("sqlite:{}", place.path("text").display());
    rusqlite::Connection::open(place.path("foreign"))
        .and_then(|file| file.execute_batch("CREATE TABLE good (id)"))
        .expect("a database");
    let foreign = format!("sqlite:{}", place.path("foreign").display());
    let stock = place.stock();
    for (args, code, word) in [
        (&["--lock", "synchronized"][..], 2, "no-expiry"),
        (
            &["--lock", "synchronized"],
            2,
            "write store (that of --store)",
        ),
        (&["--lock", "no-expiry"], 2, "--store"),
        (&["--lock", "gopher://x"], 2, "gopher"),
        (&["--lock", "none", "--stock", "mongodb://x"], 2, "sqlite:"),
        (&["--lock", "none", "--stock", "sqlite:"], 2, "sqlite:PATH"),
        (
            &["--lock", "none", "--stock", "redis://localhost:x/0"],
            2,
            "cannot be read",
        ),
        (
            &["--lock", "none", "--stock", &text],
            69,
            "cannot be opened",
        ),
        (
            &["--lock", "none", "--stock", &foreign],
            69,
            "another program",
        ),
        (&["--lock", "none", "--listen", &taken], 69, "listen"),
        (&["--lock", "redis://127.0.0.1:1/0"], 69, "redis"),
        (&["--lock", "zk://127.0.0.1:1/x"], 69, "zookeeper"),
        (
            &["--lock", "none", "--stock", "redis://127.0.0.1:1/0"],
            69,
            "Redis",
        ),
        (
            &["--lock", "right", "--store", "redis://127.0.0.1:1/0"],
            69,
            "Redis",
        ),
        (&["--lock", "memory:", "--lease", "1ms"], 2, "lease"),
    ] {
        let stock = if args.contains(&"--stock") {
            &[][..]
        } else {
            &["--stock", &stock]
        };
        let listen = if args.contains(&"--listen") {
            &[][..]
        } else {
            &["--listen", "0"]
        };
        let args = [&["shop", "serve"], listen, stock, args].concat();
        finish(&mut bare(&args)).code(code).says(word);
    }
    finish(&mut bare(&["shop", "serve", "--listen", "nowhere"])).code(2);
    let reset = finish(&mut bare(&["shop", "reset", "--stock", "memory:"]));
    reset.code(2).says("there is no stock");
    let reset = finish(&mut bare(&["shop", "reset", "--stock", "sqlite:~/x.db"]));
    reset.code(2).says("~ is not expanded");
    let mut reset = bare(&["shop", "reset"]);
    let reset = finish(reset.env("LOCKKEEPER_SHOP_STOCK", "foo:bar"));
    reset.code(2).says("there is no stock");
}

#[test]
fn load_tells_what_was_sold_and_ends_with_1_when_too_much_was() {
    let place = Place::new();
    let options = ServeOptions {
        size: 50,
        ..place.options(place.lock())
    };
    let instances = start_many(2, &options);
    let urls = urls(&instances);
    let args = ["shop", "load", "--requests", "80", "--concurrency", "8"];
    let instances: Vec<&str> = urls.iter().map(String::as_str).collect();
    let done = finish(&mut bare(&[&args[..], &instances].concat())).code(0);
    assert_eq!(done.err(), "", "no progress where there is no terminal");
    assert!(done.out().contains("80 requests"), "{done:?}");
    assert!(
        done.out().contains("oversold 0, lost updates 0"),
        "{done:?}"
    );

    let args_zh = [&args[..], &instances, &["--lang", "zh"]].concat();
    let chinese = finish(&mut bare(&args_zh)).code(0).out();
    for part in [
        "80 个请求",
        "已售",
        "没等到锁",
        "合计",
        "超卖 0，丢失的更新 0",
    ] {
        assert!(chinese.contains(part), "no {part:?} in\n{chinese}");
    }

    let done = finish(&mut bare(&[&args[..], &instances, &["--json"]].concat())).code(0);
    let json = done.json();
    assert_eq!((&json["sold"], &json["refused"]), (&0.into(), &80.into()));
    assert_eq!(json["books"]["sales"], 50, "{json}");
    assert_eq!(json["instances"].as_array().map(Vec::len), Some(2));
    assert!(json["latency_ms"]["p99"].as_f64() > Some(0.0), "{json}");

    // The same customers where nothing protects the stock.
    let open = Place::new();
    let options = ServeOptions {
        size: 50,
        work: std::time::Duration::from_millis(200),
        ..open.options(LockKind::None)
    };
    let shop = start(&options);
    let args = [&args[..], &[shop.url(), "--json"]].concat();
    let done = finish(&mut bare(&args)).code(1);
    assert!(done.json()["books"]["lost_updates"].as_i64() > Some(0));
    assert!(done.err().contains("the lock did not hold"), "{done:?}");
}

#[test]
fn load_says_when_nobody_is_there() {
    let nobody = "http://127.0.0.1:1";
    let done = finish(&mut bare(&["shop", "load", nobody])).code(69);
    done.says("no instance can be reached");
    for (args, word) in [
        (&["ftp://x"][..], "write for instance http"),
        (&["127.0.0.1:80"], "write for instance http"),
        (&["http://127.0.0.1:99999"], "http://HOST:PORT"),
        (&["http://127.0.0.1:0"], "http://HOST:PORT"),
        (&["http://me:c4n4ry-pa55@127.0.0.1:80"], "http://HOST:PORT"),
        (&[nobody, "--path", "/inventory/steal"], "/inventory/sale"),
    ] {
        let args = [&["shop", "load"], args].concat();
        let done = finish(&mut bare(&args)).code(2).says(word);
        assert!(!done.err().contains(CANARY), "{done:?}");
    }
    finish(&mut bare(&["shop", "load"])).code(2);
    finish(&mut bare(&["shop", "load", nobody, "--concurrency", "0"])).code(2);
}

#[test]
fn what_is_wrong_with_the_stocks_server_is_told_once_with_its_address() {
    let nobody = ["shop", "reset", "--stock", "redis://127.0.0.1:1/0"];
    let done = finish(&mut bare(&nobody)).code(69).says("127.0.0.1:1 ");
    assert_eq!(done.err().matches("os error").count(), 1, "{done:?}");
    let server = RedisServer::start_with(RedisOptions {
        password: Some(CANARY.into()),
        ..RedisOptions::default()
    });
    for database in [0, 1] {
        let address = format!("127.0.0.1:{}", server.port());
        let none = format!("redis://{address}/{database}");
        let none = bare(&["shop", "reset", "--stock", &none]);
        let wrong = format!("redis://:wrong-pa55@{address}/{database}");
        let mut with_wrong = bare(&["shop", "reset"]);
        with_wrong.env("LOCKKEEPER_SHOP_STOCK", wrong);
        for (mut reset, word) in [(none, "wants a password"), (with_wrong, "refuses")] {
            let done = finish(&mut reset).code(69).says(word);
            let err = done.err();
            assert!(err.contains("LOCKKEEPER_SHOP_STOCK"), "{err}");
            assert!(err.contains(&address) && !err.contains("pa55"), "{err}");
        }
    }
}

/// Both stocks, while an instance is open: it sees the full shelves at once.
#[test]
fn reset_fills_the_shelves() {
    let place = Place::new();
    let server = RedisServer::start();
    for stock in [place.stock(), server.url()] {
        let shop = start(&ServeOptions::new(place.lock(), &stock));
        for path in ["saleGoodsLock", "receiveAwardLock"] {
            ask(&shop, "POST", &format!("/redisLock/{path}"), "");
        }
        ask(&shop, "GET", "/inventory/sale", "");
        let reset = ["shop", "reset", "--stock", &stock, "--stock-size", "7"];
        finish(&mut bare(&reset)).code(0);
        let inventory = account(&shop, "inventory001");
        assert_eq!(inventory["opening"], 7);
        assert_eq!(inventory["stock"], 7);
        assert_eq!(inventory["sales"], 0);
        assert_eq!(account(&shop, "good:2")["stock"], 5);
        let again = ask(&shop, "POST", "/redisLock/receiveAwardLock", "").json();
        assert_eq!(again["result"], "received", "{again}");
        let sold = ask(&shop, "GET", "/inventory/sale", "").json();
        assert_eq!(sold["remaining"], 6, "{sold}");
    }
}

#[test]
fn a_stock_that_is_there_keeps_its_size() {
    let server = RedisServer::start();
    server.command(&["SET", "inventory001", "3"]);
    let options = ServeOptions::new(LockKind::Mutex, server.url());
    let shop = start(&ServeOptions { size: 9, ..options });
    let account = account(&shop, "inventory001");
    assert_eq!(
        (&account["opening"], &account["stock"]),
        (&3.into(), &3.into())
    );
}

#[test]
fn a_password_in_an_argument_is_refused_and_one_in_the_environment_is_never_shown() {
    let url = format!("redis://:{CANARY}@localhost/0");
    for (args, variable) in [
        (&["shop", "serve", "--lock", &url][..], "LOCKKEEPER_STORE"),
        (&["shop", "serve", "--store", &url], "LOCKKEEPER_STORE"),
        (
            &["shop", "serve", "--lock", "none", "--stock", &url],
            "LOCKKEEPER_SHOP_STOCK",
        ),
        (&["shop", "reset", "--stock", &url], "LOCKKEEPER_SHOP_STOCK"),
    ] {
        let done = finish(&mut bare(args)).code(2);
        assert!(done.err().contains(variable), "{done:?}");
        assert!(!format!("{done:?}").contains(CANARY), "{done:?}");
    }
    let server = RedisServer::start_with(RedisOptions {
        password: Some(CANARY.into()),
        ..RedisOptions::default()
    });
    for lock in [
        LockKind::Ours(server.url()),
        LockKind::parse("right", Some(&server.url())).expect("a kind"),
    ] {
        let shop = start(&ServeOptions::new(lock, server.url()));
        let sold = ask(&shop, "GET", "/inventory/sale", "");
        assert_eq!(sold.status, 200, "{sold:?}");
        let mut seen = format!("{sold:?} {:?}", shop.opened());
        for path in ["/health", "/stats"] {
            seen += &ask(&shop, "GET", path, "").text;
        }
        seen += &std::fs::read_to_string(format!("/proc/{}/cmdline", shop.pid())).expect("reads");
        assert!(
            seen.contains("127.0.0.1") && !seen.contains(CANARY),
            "{seen}"
        );
    }
}
