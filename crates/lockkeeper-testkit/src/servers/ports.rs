//! Ports for servers of tests.
//!
//! They are below those that the system gives to a program that asks for any: a server that restarts wants its port back. None is
//! given twice as long as a process lives: where a server was killed, clients of another test still knock. So each
//! process has ports of its own, by the hundred.

use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

const FIRST: u16 = 16_000;
const MANY: u16 = 100;
const LOTS: u16 = 160;

/// The lots of this process, which it keeps until it ends, and the ports that are left of the last.
struct Own {
    lots: Vec<Lot>,
    left: Vec<u16>,
}

static OWN: Mutex<Own> = Mutex::new(Own {
    lots: Vec::new(),
    left: Vec::new(),
});

/// A port of this machine that nobody listens on, for one caller and nobody else.
///
/// # Panics
/// When other processes have them all.
pub fn free_port() -> u16 {
    take().0
}

/// A listener on such a port. A port that was only tried may still be taken when its caller binds it: a child that another thread
/// forks meanwhile has the listener as well, until it executes its program.
///
/// # Panics
/// When other processes have them all.
pub fn free_listener() -> TcpListener {
    take().1
}

fn take() -> (u16, TcpListener) {
    let mut own = OWN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        while let Some(port) = own.left.pop() {
            if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
                return (port, listener);
            }
            crate::retries::count("a port was taken");
        }
        let start = uuid::Uuid::new_v4().as_u128() % u128::from(LOTS);
        let lots = (0..LOTS).map(|number| (start as u16 + number) % LOTS);
        let mut taken = lots.filter_map(|number| Some((number, Lot::take(number)?)));
        let (number, lot) = taken.next().expect("ports that no other process has");
        let first = FIRST + number * MANY;
        own.left.extend(first..first + MANY);
        own.lots.push(lot);
    }
}

/// Ports that no other process takes: it has a name that only one can have, and that goes with it.
#[cfg(target_os = "linux")]
struct Lot(#[allow(dead_code)] std::os::unix::net::UnixListener);

#[cfg(target_os = "linux")]
impl Lot {
    fn take(number: u16) -> Option<Lot> {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("lockkeeper-test-ports-{number}");
        let name = std::os::unix::net::SocketAddr::from_abstract_name(name).ok()?;
        let taken = std::os::unix::net::UnixListener::bind_addr(&name);
        taken.ok().map(Lot)
    }
}

/// Elsewhere there are no such names: chance keeps processes apart.
#[cfg(not(target_os = "linux"))]
struct Lot;

#[cfg(not(target_os = "linux"))]
impl Lot {
    fn take(_: u16) -> Option<Lot> {
        Some(Lot)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_given_twice() {
        let given: BTreeSet<u16> = (0..3 * MANY).map(|_| free_port()).collect();
        assert_eq!(given.len(), usize::from(3 * MANY));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_two_have_the_same_lot() {
        // One that no process takes for its servers; each that runs this test has another.
        let number = LOTS + (std::process::id() % u32::from(u16::MAX - LOTS)) as u16;
        let lot = Lot::take(number).expect("it is free");
        assert!(Lot::take(number).is_none());
        drop(lot);
        assert!(Lot::take(number).is_some());
    }
}
