//! Everything there is, as small as it can be told: equal states are checked once.

use lockkeeper::store::quorum::protocol::{Admission, Life, Quarantine, Vote};

use crate::scene::{CLIENTS, NODES};

/// The nodes, the clients, and what is under way between them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct State {
    pub(crate) now: i8,
    /// Nothing happened in this tick but what clients do at its start.
    pub(crate) fresh: bool,
    pub(crate) clients: [Client; CLIENTS],
    /// In order of their value, since nodes are alike.
    pub(crate) nodes: [Place; NODES],
    pub(crate) seen: Seen,
    pub(crate) crashes: u8,
    pub(crate) drifts: u8,
    pub(crate) steps: u8,
}

/// What happened so far, for the properties.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Seen {
    /// The highest token that was granted.
    pub highest: u64,
    /// One was granted that is not above it.
    pub out_of_order: bool,
    pub grants: u8,
    pub second_round: bool,
    pub renewed: bool,
    pub re_added: bool,
    pub vote_after_crash: bool,
    pub vote_after_forgetting: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Client {
    /// By how many ticks its clock is behind.
    pub behind: i8,
    pub claim: u8,
    /// Which round of the claim.
    pub number: u8,
    pub phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Phase {
    Idle,
    Trying {
        first: u64,
        began: i8,
    },
    Holding {
        first: u64,
        /// When the request was sent from which its validity counts.
        sent: i8,
        renewals: u8,
        /// When the renewal that is under way was sent.
        renewing: Option<i8>,
    },
}

/// A round, without the bits that real ids have: client, claim, number.
pub(crate) type Id = (u8, u8, u8);

/// A node, and what is under way between it and each client.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Place {
    pub hold: Option<Kept>,
    pub last_token: u64,
    /// It has once forgotten a token.
    pub forgot: bool,
    /// By how many ticks its clock is ahead.
    pub ahead: i8,
    /// What its clock showed when it started.
    pub boot: i8,
    pub run: u8,
    pub links: [Link; CLIENTS],
}

/// The vote that a node keeps: the protocol's `Hold`, in ticks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Kept {
    pub id: Id,
    pub first: u64,
    pub expires: i8,
    /// By a re-add, which nothing takes back that comes before it.
    pub re_added: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Link {
    pub quarantine: Quarantine<u8>,
    /// There while the client is connected.
    pub admission: Option<Admission>,
    /// What is on its way to the node.
    pub requests: Vec<Request>,
    /// The answer to the round that the client tries, to be heard in a later tick.
    pub vote: Option<Vote>,
    /// The same, once it is heard.
    pub voted: Option<Vote>,
    /// The answer to the renewal that the client tries, to be heard in a later tick.
    pub life: Option<Life>,
    /// The same, once it is heard.
    pub lived: Option<Life>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Request {
    Ask { id: Id, first: u64, floor: u64 },
    Release { id: Id, first: u64, arrived: bool },
    Renew { id: Id, which: u8 },
    ReAdd { id: Id, first: u64 },
}

impl Client {
    pub(crate) fn is_new(&self) -> bool {
        (self.claim, self.number, self.phase) == (0, 0, Phase::Idle)
    }
}

impl State {
    pub(crate) fn new() -> State {
        let client = Client {
            behind: 0,
            claim: 0,
            number: 0,
            phase: Phase::Idle,
        };
        let node = Place {
            hold: None,
            last_token: 0,
            forgot: false,
            ahead: 0,
            // Long ago.
            boot: -100,
            run: 0,
            links: Default::default(),
        };
        State {
            now: 0,
            fresh: false,
            clients: [client; CLIENTS],
            nodes: std::array::from_fn(|_| node.clone()),
            seen: Seen::default(),
            crashes: 0,
            drifts: 0,
            steps: 0,
        }
    }

    /// What a client's clock shows.
    pub(crate) fn clock(&self, client: usize) -> i8 {
        self.now - self.clients[client].behind
    }

    /// What a node's clock shows.
    pub(crate) fn node_clock(&self, node: usize) -> i8 {
        self.now + self.nodes[node].ahead
    }

    /// Which round a client tries or holds by.
    pub(crate) fn current(&self, client: usize) -> Option<Id> {
        let Client {
            claim,
            number,
            phase,
            ..
        } = self.clients[client];
        (phase != Phase::Idle).then_some((client as u8, claim, number))
    }

    /// How many clients have a valid hold. Those that are over are taken back as soon as their clock says so.
    pub(crate) fn holders(&self) -> usize {
        let holds = |client: &&Client| matches!(client.phase, Phase::Holding { .. });
        self.clients.iter().filter(holds).count()
    }
}
