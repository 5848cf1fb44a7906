//! The page and clients that mean no good.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::common::crowd::{is_dropped, memory, nonsense, said, silent, status, with_files};
use crate::common::{Place, until};
use crate::http::{ask, send};
use crate::lab::Lab;

fn address(lab: &Lab) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, lab.port).into()
}

#[test]
fn those_who_connect_and_say_nothing_do_not_keep_others_out() {
    let place = Place::new();
    let lab = Lab::start(&mut with_files(200, &place.lab(&["lab"])));
    let crowd = silent(address(&lab), 250);
    assert_eq!(ask(lab.port, "GET", "/api/lab", &[], "").status, 200);
    drop(crowd);
    assert!(lab.interrupt().success());
}

#[test]
fn what_is_no_request_is_refused_and_forgotten() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    let host = format!("127.0.0.1:{}", lab.port);
    for (request, statuses) in nonsense(&host) {
        let answer = said(address(&lab), &request);
        let told = status(&answer);
        let fits = told.map_or(statuses.is_empty(), |told| statuses.contains(&told));
        assert!(
            fits,
            "{statuses:?}, not {answer:?}, for {:?}",
            &request[..request.len().min(60)]
        );
    }
    assert_eq!(ask(lab.port, "GET", "/api/lab", &[], "").status, 200);
}

#[test]
fn windows_beyond_counting_are_refused_and_closed_ones_make_place() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    for path in ["/api/lab/events", "/api/locks/events"] {
        let open = || {
            let mut stream = send(lab.port, "GET", path, &[], "");
            let mut head = [0; 12];
            stream.read_exact(&mut head).expect("an answer");
            let head = String::from_utf8_lossy(&head).into_owned();
            (stream, status(&head).expect("a status"))
        };
        let windows: Vec<(TcpStream, u16)> = (0..100).map(|_| open()).collect();
        let let_in = windows.iter().filter(|window| window.1 == 200).count();
        assert!((10..100).contains(&let_in), "{let_in}");
        assert!(windows.iter().all(|window| [200, 503].contains(&window.1)));
        drop(windows);
        until("there is a place again", || open().1 == 200);
    }
}

/// A browser that is stopped, or asleep, with the view of the locks open: looks come four times a second.
#[test]
fn nothing_piles_up_for_a_window_that_does_not_read() {
    let place = Place::new();
    let lab = Lab::start(&mut place.lab(&[]));
    // Enough for the buffers of both ends to be full soon.
    let keeper = lockkeeper::blocking::Lockkeeper::connect(&place.url()).expect("a store");
    let name = "x".repeat(400);
    let locks: Vec<_> = (0..300)
        .map(|at| keeper.lock(&format!("{name}{at}")).expect("a lock"))
        .collect();
    let _holds: Vec<_> = locks
        .iter()
        .map(|lock| lock.acquire().expect("free"))
        .collect();
    let mute = send(lab.port, "GET", "/api/locks/events", &[], "");
    let mut other = send(lab.port, "GET", "/api/locks/events", &[], "");
    // Somebody else sees all of it meanwhile.
    let reading = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while other.read(&mut buffer).is_ok_and(|read| read > 0) {}
    });
    std::thread::sleep(Duration::from_secs(5));
    let before = memory(lab.pid().as_raw().cast_unsigned());
    assert!(
        is_dropped(&mute, Duration::from_secs(120)),
        "it is still kept"
    );
    let after = memory(lab.pid().as_raw().cast_unsigned());
    assert!(after < before + 20_000, "{before} KiB, then {after} KiB");
    drop(lab);
    reading.join().expect("no panic");
}
