//! A node that refuses, or that is not what it should be, counts as down: the others go on, and it votes again by itself.

use std::time::Duration;

use crate::claims::claim_for;
use crate::common::*;
use lockkeeper::Error;
use lockkeeper::store::{Mode, NodeState, Renewed, Store};
use lockkeeper_testkit::servers::independent::Independent;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

const LEASE: Duration = Duration::from_secs(2);
const QUERY: &str = "2s&node_timeout=10s";

/// What can be wrong with one node.
#[derive(Clone, Copy, Debug)]
enum Sickness {
    Password,
    Replica,
    Permission,
    Clock,
    MaxLease,
}

use Sickness::*;

impl Sickness {
    fn falls_on(self, server: &RedisServer, clock: &WallClock) {
        let done = |answer: String| assert_eq!(answer, "+OK\r\n", "{self:?}");
        match self {
            Password => done(server.command(&["CONFIG", "SET", "requirepass", "rotated"])),
            // Nobody is there: it waits for a master, and keeps what it has.
            Replica => done(server.command(&["REPLICAOF", "127.0.0.1", "1"])),
            Permission => done(server.command(&["ACL", "SETUSER", "default", "-info"])),
            Clock => clock.behind(Duration::from_secs(100)),
            MaxLease => done(server.command(&["SET", "lockkeeper_quorum", "60000"])),
        }
        self.cut(server);
    }

    /// Ends every connection, so that clients come anew.
    fn cut(self, server: &RedisServer) {
        let kill = ["CLIENT", "KILL", "SKIPME", "yes"];
        match self {
            Password => server.command_as("default", "rotated", &kill),
            _ => server.command(&kill),
        };
    }

    fn leaves(self, server: &RedisServer, clock: &WallClock) {
        match self {
            Password => {
                let none = ["CONFIG", "SET", "requirepass", ""];
                server.command_as("default", "rotated", &none);
            }
            Replica => drop(server.command(&["REPLICAOF", "NO", "ONE"])),
            Permission => drop(server.command(&["ACL", "SETUSER", "default", "+info"])),
            Clock => clock.ahead(Duration::ZERO),
            // It takes that of the others.
            MaxLease => drop(server.command(&["DEL", "lockkeeper_quorum"])),
        }
    }

    /// What is said of the node.
    fn word(self) -> &'static str {
        match self {
            Password => "password",
            Replica => "replica",
            Permission => "+info",
            Clock => "sits out",
            MaxLease => "max_lease=60s",
        }
    }

    fn is_shown_by(self, state: &NodeState) -> bool {
        let text = state.to_string();
        text.contains(self.word()) && (matches!(self, Permission) || !text.contains("ACL"))
    }
}

/// So many nodes that are old enough to vote, each with a clock of its own.
fn nodes(count: usize) -> (Independent, Vec<WallClock>) {
    let clocks: Vec<WallClock> = (0..count).map(|_| WallClock::new()).collect();
    let with = |clock: &WallClock| RedisOptions {
        environment: clock.environment(),
        ..RedisOptions::default()
    };
    let servers = clocks
        .iter()
        .map(|clock| RedisServer::start_with(with(clock)));
    let nodes = Independent::of(servers);
    nodes.wait_out_quarantine(LEASE);
    (nodes, clocks)
}

/// Takes a lock and has every node keep it.
async fn all_vote(store: &dyn Store, name: &str, count: usize) {
    until(&format!("all vote for {name}"), async || {
        let held = claim_for(LEASE, name, Mode::Exclusive);
        let attempt = store.try_acquire(&held).await;
        if !matches!(attempt, Ok(lockkeeper::store::Attempt::Granted(_))) {
            return false;
        }
        let renewal = crate::claims::renewal_for(LEASE, &held);
        let renewed = store.renew(&[renewal]).await;
        assert_eq!(renewed, Ok(vec![Renewed::Renewed]));
        let votes = store.votes(held.id).unwrap_or_default();
        let all = votes.iter().filter(|vote| vote.holds).count() == count;
        assert_eq!(crate::claims::release(store, &held).await, Ok(true));
        all
    })
    .await;
}

/// As many as may be are sick, each in its own way; then they are well again.
async fn goes_on(count: usize, sick: &[(usize, Sickness)]) {
    let (nodes, clocks) = nodes(count);
    let url = nodes.url(QUERY);
    let lives_on = open(&url).await;
    all_vote(&lives_on, "before", count).await;
    for (at, sickness) in sick {
        sickness.falls_on(&nodes.servers()[*at], &clocks[*at]);
    }
    let late = open(&url).await;
    for store in [&lives_on, &late] {
        until(&format!("{sick:?} is shown"), async || {
            let states = states(store);
            let mut shown = sick.iter();
            shown.all(|(at, sickness)| sickness.is_shown_by(&states[*at]))
        })
        .await;
        let held = claim_for(LEASE, "meanwhile", Mode::Exclusive);
        assert!(is_granted(store, &held).await, "{sick:?}");
        assert_eq!(votes(store, &held), count - sick.len(), "{sick:?}");
        assert_eq!(renew(store, &held, LEASE).await, Ok(Renewed::Renewed));
        assert_eq!(release(store, &held).await, Ok(true));
    }
    for (at, sickness) in sick {
        sickness.leaves(&nodes.servers()[*at], &clocks[*at]);
    }
    for store in [&lives_on, &late] {
        all_vote(store, "after", count).await;
    }
    until("all have a record again", async || {
        nodes.count_key("lockkeeper_quorum") == count
    })
    .await;
}

macro_rules! scenes {
    ($($name:ident: $count:literal, $sick:expr;)*) => {$(
        #[tokio::test]
        async fn $name() {
            goes_on($count, &$sick).await;
        }
    )*};
}

scenes! {
    one_of_three_has_another_password: 3, [(2, Password)];
    one_of_three_is_a_replica: 3, [(2, Replica)];
    one_of_three_lost_a_permission: 3, [(2, Permission)];
    one_of_three_was_set_back: 3, [(2, Clock)];
    one_of_three_has_another_max_lease: 3, [(2, MaxLease)];
    two_of_five_have_another_password_and_are_replicas: 5, [(1, Password), (3, Replica)];
    two_of_five_lost_a_permission_and_were_set_back: 5, [(0, Permission), (4, Clock)];
    two_of_five_have_another_max_lease: 5, [(1, MaxLease), (2, MaxLease)];
}

/// A replica has forgotten what it knew, if its master knows nothing of it. A client that saw it as one does not take its vote at once.
#[tokio::test]
async fn a_node_that_was_a_replica_sits_out_before_it_votes() {
    let (nodes, _clocks) = nodes(3);
    let store = open(&nodes.url(QUERY)).await;
    let server = &nodes.servers()[2];
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    // It is asked to vote, and says what it is.
    until("it is shown", async || {
        let held = claim_for(LEASE, "asks", Mode::Exclusive);
        assert!(is_granted(&store, &held).await);
        assert_eq!(release(&store, &held).await, Ok(true));
        Replica.is_shown_by(&states(&store)[2])
    })
    .await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    until("it sits out", async || {
        let state = states(&store)[2].clone();
        assert_ne!(state, NodeState::Up, "at once");
        matches!(state, NodeState::SittingOut { .. })
    })
    .await;
    all_vote(&store, "after", 3).await;
}

#[tokio::test]
async fn without_a_majority_that_is_well_each_is_named_with_its_reason() {
    let (mut nodes, clocks) = nodes(3);
    let url = nodes.url(QUERY);
    drop(open(&url).await);
    for (at, sickness) in [(0, Replica), (1, Permission)] {
        sickness.falls_on(&nodes.servers()[at], &clocks[at]);
    }
    let named = |error: &Error, all: &[(usize, &str)]| {
        let text = error.to_string();
        for (at, word) in all {
            let address = format!("127.0.0.1:{}", nodes.servers()[*at].port());
            let said = text.split(&address).nth(1).unwrap_or_default();
            let said = said.split("; 127.").next().unwrap_or_default();
            assert!(said.contains(word), "{address} {word:?}: {text}");
        }
    };
    let two = [(0, "replica"), (1, "+info")];
    let error = connect(&url).await.expect_err("two of three are sick");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    named(&error, &two);
    Password.falls_on(&nodes.servers()[2], &clocks[2]);
    let error = connect(&url).await.expect_err("all are sick");
    assert!(matches!(error, Error::Refused { .. }), "{error:?}");
    named(&error, &[two[0], two[1], (2, "password")]);
    // Where one that is merely away would make a majority, to try again may help.
    Permission.leaves(&nodes.servers()[1], &clocks[1]);
    nodes.server(2).kill();
    let error = connect(&url).await.expect_err("one is well");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("replica"), "{text}");
    assert!(
        text.contains(&nodes.servers()[2].port().to_string()),
        "{text}"
    );
}
