//! Locks in a database as they are written every day, each in the scene that shows its mistake: the checker catches all of them.
//!
//! The clients are processes of their own, `psql` and `mariadb`, told what to ask step by step. Where there is a right way, it
//! passes in the same scene.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lockkeeper::Token;
use lockkeeper::clock::{Clock, Moment};
use lockkeeper_testkit::checker::{Demands, FaultKind, Rule, Verdict, check};
use lockkeeper_testkit::history::{Answer, Call, Fault, Mode, Recorder, merge};
use lockkeeper_testkit::servers::mariadb::MariaDbServer;
use lockkeeper_testkit::servers::pgbouncer::PgBouncer;
use lockkeeper_testkit::servers::postgres::{PostgresServer, programs};
use rustix::process::{Pid, Signal, kill_process};

/// A client in a process of its own, with one session.
struct Client {
    name: &'static str,
    child: Child,
    asks: ChildStdin,
    hears: BufReader<ChildStdout>,
    saw: Recorder,
}

impl Client {
    fn postgres(name: &'static str, port: u16) -> Client {
        let mut psql = Command::new(programs().join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-U", "postgres", "-d", "postgres"])
            .args(["-h", "127.0.0.1", "-p", &port.to_string()]);
        Client::run(name, psql)
    }

    fn mariadb(name: &'static str, server: &MariaDbServer) -> Client {
        let mut mariadb = Command::new("mariadb");
        mariadb
            .args(["--no-defaults", "--user=root", "--batch", "--unbuffered"])
            .arg("--skip-column-names")
            .arg(format!("--socket={}", server.socket().display()));
        Client::run(name, mariadb)
    }

    fn run(name: &'static str, mut command: Command) -> Client {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the client is installed; see `cargo xtask test`");
        Client {
            name,
            asks: child.stdin.take().expect("a pipe"),
            hears: BufReader::new(child.stdout.take().expect("a pipe")),
            child,
            saw: Recorder::in_memory(name, Clock::real()),
        }
    }

    /// Runs statements. Returns the last line of the answer.
    fn ask(&mut self, statements: &str) -> String {
        writeln!(self.asks, "{statements}; SELECT 'over';").expect("it listens");
        let mut last = String::new();
        loop {
            let mut line = String::new();
            let read = self.hears.read_line(&mut line).expect("it answers");
            assert!(read > 0, "{} has ended", self.name);
            match line.trim_end() {
                "over" => return last,
                line => line.clone_into(&mut last),
            }
        }
    }

    /// Asks for the lock. The answer is a token, or nothing. A holder believes in it for so long after it asked.
    fn takes(&mut self, statement: &str, believes: Option<Duration>) -> Option<u64> {
        let op = self.saw.acquire("lock", self.name, Mode::Exclusive);
        let sent = Moment::now();
        let token = self.ask(statement).parse().ok();
        match token {
            Some(token) => {
                let deadline = believes.map_or(Moment::NEVER, |time| sent + time);
                self.saw.granted(op, Token::new(token), deadline);
            }
            None => self.saw.ok(op, Answer::Busy),
        }
        token
    }

    /// Writes `value` to the resource, which had `base` when the client read it.
    fn writes(&mut self, statement: &str, token: u64, (base, value): (u64, u64)) {
        let resource = "resource".to_owned();
        let op = self.saw.invoke(Call::Write {
            resource,
            token,
            base,
            value,
        });
        match self.ask(statement).parse() {
            Ok(seq) => self.saw.ok(op, Answer::Accepted { seq }),
            Err(_) => self.saw.ok(op, Answer::Refused { highest: token + 1 }),
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id() as i32).expect("a process");
        kill_process(pid, signal).expect("it can be signalled");
    }

    fn stops(&self) {
        self.signal(Signal::STOP);
        let process = self.name.to_owned();
        self.saw.fault(Fault::Stopped { process });
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn judged(clients: [&Client; 2], demands: &Demands) -> Verdict {
    check(&merge(clients.map(|client| client.saw.events())), demands)
}

/// The pooler gives both clients the same session, and a session lock re-enters.
#[test]
fn an_advisory_lock_behind_a_pooler_is_caught() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::to(&server, 1);
    for (port, pooled) in [(pooler.port(), true), (server.port(), false)] {
        let mut clients = [Client::postgres("one", port), Client::postgres("two", port)];
        for (client, token) in clients.iter_mut().zip([1, 2]) {
            let take = format!("SELECT {token} WHERE pg_try_advisory_lock({port})");
            client.takes(&take, None);
        }
        let [one, two] = &clients;
        let verdict = judged([one, two], &Demands::none());
        assert_eq!(verdict.breaks(Rule::S1), pooled, "{verdict}");
    }
}

/// A client that is stopped says nothing, so the server ends its session, and with it the lock in which the client believes.
#[test]
fn a_session_lock_of_a_stopped_client_is_caught() {
    let server = MariaDbServer::start();
    let (mut one, mut two) = (
        Client::mariadb("one", &server),
        Client::mariadb("two", &server),
    );
    let take = "SET SESSION wait_timeout = 1; SELECT 1 FROM DUAL WHERE GET_LOCK('lock', 0) = 1";
    assert_eq!(one.takes(take, None), Some(1));
    one.stops();
    two.takes("SELECT 2 FROM DUAL WHERE GET_LOCK('lock', 60) = 1", None);
    let demands = Demands::none().fault(FaultKind::HolderStopped, 1);
    let verdict = judged([&one, &two], &demands);
    assert!(verdict.breaks(Rule::S1), "{verdict}");
}

const LEASE: Duration = Duration::from_secs(3);

/// A table of leases, and the resource that they are for.
fn lease_table(server: &PostgresServer) {
    server.sql(
        "CREATE TABLE lease (token bigint, until timestamptz); INSERT INTO lease VALUES (0, 'epoch'); \
         CREATE TABLE resource (value bigint, fence bigint, seq bigint); INSERT INTO resource VALUES (0, 0, 0)",
    );
}

/// Takes the lease, if it is over by this clock.
fn take(clock: &str) -> String {
    let seconds = LEASE.as_secs();
    format!(
        "UPDATE lease SET token = token + 1, until = {clock} + interval '{seconds} s' WHERE until <= {clock} RETURNING token"
    )
}

/// `now()` is when the transaction began: a lease that is taken later in it is over before its holder thinks so.
#[test]
fn a_lease_by_the_time_of_the_transaction_is_caught() {
    for (clock, wrong) in [("now()", true), ("clock_timestamp()", false)] {
        let server = PostgresServer::start();
        lease_table(&server);
        let (mut one, mut two) = (
            Client::postgres("one", server.port()),
            Client::postgres("two", server.port()),
        );
        // Its work of before, in the same transaction.
        one.ask(&format!("BEGIN; SELECT pg_sleep({})", LEASE.as_secs()));
        let sent = Moment::now();
        assert!(one.takes(&take(clock), Some(LEASE)).is_some());
        one.ask("COMMIT");
        two.takes(&take(clock), Some(LEASE));
        let verdict = judged([&one, &two], &Demands::none());
        // On a machine that is too busy the lease is over by any clock.
        if Moment::now() < sent + LEASE {
            assert_eq!(verdict.breaks(Rule::S1), wrong, "{clock}: {verdict}");
        }
    }
}

/// The holder is stopped past its lease and writes then. Only the resource can refuse that, if it is shown the token.
#[test]
fn a_lease_without_fencing_is_caught() {
    for fenced in [false, true] {
        let server = PostgresServer::start();
        lease_table(&server);
        let (mut one, mut two) = (
            Client::postgres("one", server.port()),
            Client::postgres("two", server.port()),
        );
        let write = |token: u64, value: u64| {
            let fence = if fenced {
                format!(" WHERE fence <= {token}")
            } else {
                String::new()
            };
            format!(
                "UPDATE resource SET value = {value}, fence = {token}, seq = seq + 1{fence} RETURNING seq"
            )
        };
        let take = take("clock_timestamp()");
        let late = one.takes(&take, Some(LEASE)).expect("it is free");
        one.stops();
        let token = loop {
            if let Some(token) = two.takes(&take, Some(LEASE)) {
                break token;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        two.writes(&write(token, 1), token, (0, 1));
        one.signal(Signal::CONT);
        one.writes(&write(late, 2), late, (0, 2));
        let demands = Demands::none().fault(FaultKind::HolderStopped, 1);
        let verdict = judged([&one, &two], &demands);
        assert_eq!(verdict.breaks(Rule::S3), !fenced, "{verdict}");
        if fenced {
            drop(verdict.expect_valid());
        }
    }
}
