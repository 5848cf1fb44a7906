//! What may happen in a check, and which rule of the protocol is switched off.

use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::quorum::protocol::Terms;

/// How many nodes there are.
pub const NODES: usize = 3;
/// How many clients.
pub const CLIENTS: usize = 2;
/// A lease, in ticks.
pub const LEASE: i8 = 3;

const TICK: Duration = Duration::from_millis(2);
/// Clocks start here, so that they can be set back.
const START: u64 = 1_000;

/// One check.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// The protocol's numbers.
    pub terms: Terms,
    /// How many claims each client makes, one after the other.
    pub claims: [u8; CLIENTS],
    /// How many rounds a claim of each has at most.
    pub rounds: [u8; CLIENTS],
    /// How often a hold is renewed at most.
    pub renewals: u8,
    /// How many ticks pass at most.
    pub ticks: u8,
    /// How often a node crashes at most, and comes back empty.
    pub crashes: u8,
    /// How often a clock is a tick off its pace at most.
    pub drifts: u8,
    /// How often a node's clock is set at most.
    pub steps: u8,
    /// How many ticks a node keeps the last token of a name; for ever if nothing is said.
    pub retention: Option<i8>,
    /// Whether requests may arrive twice.
    pub repeats: bool,
    /// What must be seen to happen.
    pub expects: &'static [Expect],
    /// Whether rounds that failed are withdrawn.
    pub clean_up: bool,
    /// Whether nodes refuse tokens.
    pub token_refusal: bool,
    /// Whether each round has an id of its own.
    pub fresh_ids: bool,
}

/// Something that a check must come across, or it proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expect {
    /// A claim is granted.
    Grant,
    /// One is granted after another.
    SecondGrant,
    /// A claim is granted in its second round.
    SecondRound,
    /// A renewal succeeds.
    Renewal,
    /// A node is re-added to a hold.
    ReAdd,
    /// A client is granted a lock with the vote of a node that crashed.
    VoteAfterCrash,
    /// A client is granted a lock with the vote of a node that forgot the last token.
    VoteAfterForgetting,
}

impl Scene {
    /// A scene in which nothing goes wrong but the network.
    pub fn calm() -> Scene {
        Scene {
            terms: Terms::with_grain(NODES, TICK * LEASE as u32, Duration::ZERO),
            claims: [1, 1],
            rounds: [1, 1],
            renewals: 0,
            ticks: 3,
            crashes: 0,
            drifts: 0,
            steps: 0,
            retention: None,
            repeats: true,
            expects: &[Expect::Grant, Expect::SecondGrant],
            clean_up: true,
            token_refusal: true,
            fresh_ids: true,
        }
    }

    /// A scene in which nodes refuse tokens that are older than so many ticks, and forget theirs after so many. They may be
    /// set back by the difference.
    pub fn forgetful(lag: i8, retention: i8) -> Scene {
        let mut scene = Scene::calm();
        scene.retention = Some(retention);
        scene.terms.lag = ticks(lag);
        scene
    }

    pub(crate) fn lease(&self) -> Duration {
        ticks(LEASE)
    }

    /// Whether a hold whose request was sent at this tick of a client's clock is valid at that one.
    pub(crate) fn is_valid(&self, sent: i8, clock: i8) -> bool {
        moment(clock) < self.terms.deadline(moment(sent), self.lease())
    }
}

/// What a client's clock shows.
pub(crate) fn moment(clock: i8) -> Moment {
    Moment::BOOT + TICK * (START as i64 + i64::from(clock)) as u32
}

/// What a node's clock shows, in microseconds.
pub(crate) fn micros(clock: i8) -> u64 {
    (START as i64 + i64::from(clock)) as u64 * TICK.as_micros() as u64
}

/// The tick at which a node's clock shows this.
pub(crate) fn tick(micros: u64) -> i8 {
    (micros as i64 / TICK.as_micros() as i64 - START as i64) as i8
}

pub(crate) fn ticks(count: i8) -> Duration {
    TICK * count.max(0) as u32
}
