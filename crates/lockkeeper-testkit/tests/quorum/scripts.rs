//! The scripts on a real server do what the model's node does, step by step.
//!
//! The server's clock stands still, and the test sets it forward between the steps. So both are asked at the same
//! moment, and no machine is too slow for the comparison.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockkeeper::store::quorum::protocol::{Ask, Life, Node, RoundId, Run, Terms, Vote};
use lockkeeper::store::quorum::trial::Trial;
use lockkeeper::store::{ClaimId, KeeperId, Mode};
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};
use lockkeeper_testkit::servers::wall_clock::WallClock;

const STEPS: usize = 60;
/// The clock is set forward by multiples of this. No lease is one, so none ends at the very moment of a step: a server
/// ends it a millisecond later than the model.
const TICK: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_millis(30_005);
const SHORT: Duration = Duration::from_millis(65);

/// One request to the node.
#[derive(Clone, Copy, Debug)]
enum Request {
    Acquire(Ask),
    Renew(RoundId, Duration),
    ReAdd(RoundId, Mode, Run, Duration),
    Release(RoundId, Run),
}

/// What of an answer does not depend on the moment it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answer {
    Yes,
    Busy(Option<u64>),
    Stale(u64),
    TooOld,
    Ahead(u64),
    TooLate,
    Alive,
    Gone,
}

fn of_vote(vote: Vote) -> Answer {
    match vote {
        Vote::Yes => Answer::Yes,
        Vote::Busy { holder, .. } => Answer::Busy(holder),
        Vote::Stale { last, now } if last == now => Answer::TooOld,
        Vote::Stale { last, .. } => Answer::Stale(last),
        Vote::Ahead { last, .. } => Answer::Ahead(last),
        Vote::TooLate => Answer::TooLate,
        other => panic!("a node does not answer {other:?}"),
    }
}

fn of_life(life: Life) -> Answer {
    match life {
        Life::Alive => Answer::Alive,
        _ => Answer::Gone,
    }
}

fn of_added(added: bool) -> Answer {
    match added {
        true => Answer::Yes,
        false => Answer::Busy(None),
    }
}

fn model(node: &mut Node, terms: &Terms, request: Request, now: u64) -> Answer {
    use lockkeeper::store::quorum::protocol::Added;
    match request {
        Request::Acquire(ask) => of_vote(node.acquire(terms, &ask, now)),
        Request::Renew(round, lease) => of_life(node.renew(round, lease, now)),
        Request::ReAdd(round, mode, run, lease) => {
            of_added(node.re_add(round, mode, run, lease, now) == Added::Added)
        }
        Request::Release(round, run) => of_life(node.release(terms, round, run, now)),
    }
}

async fn real(trial: &Trial, request: Request) -> Answer {
    use lockkeeper::store::quorum::protocol::Added;
    match request {
        Request::Acquire(ask) => of_vote(trial.acquire(ask).await.expect("votes")),
        Request::Renew(round, lease) => of_life(trial.renew(round, lease).await.expect("renews")),
        Request::ReAdd(round, mode, run, lease) => {
            let added = trial.re_add(round, mode, run, lease).await;
            of_added(added.expect("adds") == Added::Added)
        }
        Request::Release(round, run) => of_life(trial.release(round, run).await.expect("releases")),
    }
}

/// Requests of a few claims, each with a few rounds.
struct Chance {
    random: Random,
    modes: &'static [Mode],
    keepers: [KeeperId; 2],
    runs: Vec<(RoundId, Mode, Run)>,
}

impl Chance {
    fn lease(&mut self) -> Duration {
        if self.random.chance(0.3) { SHORT } else { LONG }
    }

    fn claim(&mut self) -> ClaimId {
        let number = 1 + self.random.below(4);
        ClaimId {
            keeper: self.keepers[(number % 2) as usize],
            number,
        }
    }

    fn ask(&mut self, now: u64, lead: u64, lag: u64) -> Ask {
        let claim = self.claim();
        let round = RoundId {
            claim,
            number: 1 + self.random.below(12),
        };
        let first = match self.random.below(9) {
            6..=7 => now - lag - 5_000_000,
            8 => now - lag + 60_000_000,
            0 => now - 5_000_000,
            1 => now + lead + 5_000_000,
            2 => now + lead / 2,
            _ => now + self.random.below(1_000),
        };
        let run = Run {
            first,
            count: 1 + self.random.below(3) as u32,
        };
        let mode = self.modes[self.random.below(self.modes.len() as u64) as usize];
        // A round is one proposal, however often it is sent.
        let known = self.runs.iter().find(|(known, ..)| *known == round);
        let (_, mode, run) = known.copied().unwrap_or((round, mode, run));
        self.runs.push((round, mode, run));
        Ask {
            round,
            mode,
            lease: self.lease(),
            run,
            floor: if self.random.chance(0.1) { now } else { 0 },
            not_after: match self.random.below(10) {
                0 => Some(now - 5_000_000),
                1 => Some(now + 60_000_000),
                _ => None,
            },
            // A writer becomes a reader; nobody else stands beside another, whatever it names.
            beside: self.random.chance(0.5).then(|| self.claim()),
        }
    }

    fn known(&mut self) -> Option<(RoundId, Mode, Run)> {
        let at = self.random.below(self.runs.len() as u64);
        self.runs.get(at as usize).copied()
    }

    fn request(&mut self, now: u64, lead: u64, lag: u64) -> Request {
        let kind = self.random.below(10);
        match (kind, self.known()) {
            // No lease at all: it is only asked about.
            (0, Some((round, ..))) if self.random.chance(0.5) => {
                Request::Renew(round, Duration::ZERO)
            }
            (0..=1, Some((round, ..))) => Request::Renew(round, self.lease()),
            (2, Some((round, mode, run))) => Request::ReAdd(round, mode, run, self.lease()),
            (3..=4, Some((round, _, run))) => Request::Release(round, run),
            _ => Request::Acquire(self.ask(now, lead, lag)),
        }
    }
}

/// Nobody re-adds a round when there is a later one of the claim: there is one only if the earlier was refused.
fn never_sent(node: &Node, request: Request) -> bool {
    let Request::ReAdd(round, ..) = request else {
        return false;
    };
    let mut holds = node.holds.iter();
    holds.any(|hold| hold.round.claim == round.claim && hold.round != round)
}

async fn compare(dialect: &str, modes: &'static [Mode], seed: u64) {
    let clock = WallClock::new();
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    let mut now = Duration::from_secs(started.expect("after 1970").as_secs());
    clock.stand_at(now);
    let server = RedisServer::start_with(RedisOptions {
        environment: clock.environment(),
        ..RedisOptions::default()
    });
    let terms = Terms::new(3, LONG);
    let [lead, lag] = [terms.lead, terms.lag].map(|time| time.as_micros() as u64);
    let url = format!("{}?dialect={dialect}", server.url());
    let mut seen = std::collections::BTreeMap::new();
    for case in 0..40 {
        let name = format!("case {case}");
        let trial = Trial::open(&url, &name, terms).await.expect("connects");
        let mut chance = Chance {
            random: Random::seeded(seed + case),
            modes,
            keepers: [KeeperId::new(), KeeperId::new()],
            runs: Vec::new(),
        };
        let mut node = Node::default();
        for step in 0..STEPS {
            if chance.random.chance(0.3) {
                now += TICK * (1 + chance.random.below(12) as u32);
                clock.stand_at(now);
            }
            let micros = now.as_micros() as u64;
            let request = chance.request(micros, lead, lag);
            if never_sent(&node, request) {
                continue;
            }
            let before = node.clone();
            let expected = model(&mut node, &terms, request, micros);
            assert_eq!(
                real(&trial, request).await,
                expected,
                "seed {seed}, case {case}, step {step}: {request:?} at {micros} on {before:?}"
            );
            *seen
                .entry(
                    format!("{expected:?}")
                        .split('(')
                        .next()
                        .unwrap_or_default()
                        .to_owned(),
                )
                .or_insert(0) += 1;
        }
    }
    // It proves nothing about what never came up.
    for kind in [
        "Yes", "Busy", "Stale", "TooOld", "Ahead", "TooLate", "Alive", "Gone",
    ] {
        assert!(
            seen.get(kind).is_some_and(|count| *count >= 20),
            "{kind}: {seen:?}"
        );
    }
}

#[tokio::test]
async fn the_scripts_do_what_the_model_does() {
    compare("redisson", &[Mode::Exclusive, Mode::Read, Mode::Write], 1).await;
}

#[tokio::test]
async fn the_plain_scripts_do_what_the_model_does() {
    compare("plain", &[Mode::Exclusive], 1_000).await;
}
