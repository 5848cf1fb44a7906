//! What holds whatever nodes answer and whatever is asked of them.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::clock::Moment;
use crate::store::{ClaimId, KeeperId, Mode};

const NOW: u64 = 1_800_000_000_000_000;
const LEASE: Duration = Duration::from_millis(100);
const T: Moment = Moment::BOOT;

fn id(claim: u64, number: u64) -> RoundId {
    let keeper = KeeperId::from_bits(u128::from(claim));
    let claim = ClaimId {
        keeper,
        number: claim,
    };
    RoundId { claim, number }
}

/// Numbers around the clock, and some that no sane node tells.
fn numbers() -> impl Strategy<Value = u64> + Clone {
    prop_oneof![NOW - 200_000..NOW + 200_000, any::<u64>()]
}

fn votes() -> impl Strategy<Value = Vote> {
    let millis = (0..500u64).prop_map(Duration::from_millis);
    prop_oneof![
        4 => Just(Vote::Yes),
        1 => Just(Vote::Silent),
        1 => Just(Vote::TooLate),
        2 => (proptest::option::of(millis.clone()), proptest::option::of(0..3u64))
            .prop_map(|(free_in, holder)| Vote::Busy { free_in, holder }),
        2 => (numbers(), numbers()).prop_map(|(last, now)| Vote::Stale { last, now }),
        2 => (numbers(), numbers()).prop_map(|(last, now)| Vote::Ahead { last, now }),
        1 => millis.prop_map(|ready_in| Vote::SittingOut { ready_in }),
    ]
}

#[derive(Clone, Debug)]
enum Request {
    Ask(Ask),
    Renew(RoundId),
    ReAdd(RoundId, Mode, Run),
    Release(RoundId, Run),
    Pass(u64),
}

fn requests() -> impl Strategy<Value = Request> {
    let rounds = (0..3u64, 0..3u64).prop_map(|(claim, number)| id(claim, number));
    let modes = prop_oneof![Just(Mode::Exclusive), Just(Mode::Read), Just(Mode::Write)];
    let runs = (numbers(), 1..50u32).prop_map(|(first, count)| Run { first, count });
    let asks = (rounds.clone(), modes.clone(), runs.clone(), numbers());
    prop_oneof![
        4 => asks.prop_map(|(round, mode, run, floor)| Request::Ask(Ask {
            round,
            mode,
            lease: LEASE,
            run,
            floor: floor.min(NOW),
            not_after: None,
            beside: None,
        })),
        1 => rounds.clone().prop_map(Request::Renew),
        1 => (rounds.clone(), modes, runs.clone())
            .prop_map(|(round, mode, run)| Request::ReAdd(round, mode, run)),
        2 => (rounds, runs).prop_map(|(round, run)| Request::Release(round, run)),
        2 => (0..60_000u64).prop_map(Request::Pass),
    ]
}

proptest! {
    #[test]
    fn a_round_is_granted_by_a_majority_in_time_and_by_nothing_else(
        answers in proptest::collection::vec((0..5usize, votes(), 0..150u64), 0..12),
        count in 1..100u32,
    ) {
        let terms = Terms::new(5, LEASE);
        let run = Run { first: NOW, count };
        let mut round = Round::new(terms, id(1, 1), run, LEASE, T);
        let mut now = T;
        let closed = (usize::MAX, Vote::Silent, 150);
        for (node, vote, at) in answers.into_iter().chain([closed]) {
            now = now.max(T + Duration::from_millis(at));
            let before = round.decision();
            let step = match node {
                usize::MAX => round.close(now),
                node => round.vote(node, vote, now),
            };
            match step {
                Step::Granted(granted) => {
                    prop_assert_eq!(before, None);
                    prop_assert!(round.yes() >= 3 && granted.votes == round.yes());
                    prop_assert!(now < granted.deadline && granted.run == run);
                }
                Step::Refused(refusal) => {
                    prop_assert_eq!(before, None);
                    prop_assert!(round.yes() < 3 || refusal == Refusal::TooSlow);
                    if let Refusal::Again { first } = refusal {
                        prop_assert!(first < run.first || first > run.last());
                    }
                }
                Step::Wait => prop_assert!(before != Some(false) || vote != Vote::Yes),
                Step::Joined => prop_assert_eq!(before, Some(true)),
                Step::Withdraw => prop_assert_eq!((before, vote), (Some(false), Vote::Yes)),
            }
        }
        prop_assert!(round.decision().is_some(), "closed and still open");
    }

    #[test]
    fn a_node_keeps_what_excludes_each_other_one_at_a_time(
        requests in proptest::collection::vec(requests(), 0..60),
    ) {
        let terms = Terms::new(3, LEASE);
        let (mut node, mut now) = (Node::default(), NOW);
        for request in requests {
            let before = node.clone();
            match request {
                Request::Ask(ask) => {
                    let vote = node.acquire(&terms, &ask, now);
                    let kept = before.holds.iter().any(|hold| hold.round == ask.round && hold.expires > now);
                    if vote == Vote::Yes && !kept {
                        prop_assert!(ask.run.first > before.last_token.max(ask.floor));
                        prop_assert!(ask.run.last() <= now + LEASE.as_micros() as u64);
                        prop_assert_eq!(node.last_token, ask.run.last());
                    }
                }
                Request::Renew(round) => {
                    node.renew(round, LEASE, now);
                }
                Request::ReAdd(round, mode, run) => {
                    node.re_add(round, mode, run, LEASE, now);
                }
                Request::Release(round, run) => {
                    node.release(&terms, round, run, now);
                    prop_assert!(node.holds.iter().all(|hold| hold.round != round));
                    let ask = Ask {
                        round,
                        mode: Mode::Exclusive,
                        lease: LEASE,
                        run,
                        floor: 0,
                        not_after: None,
                        beside: None,
                    };
                    let late = node.clone().acquire(&terms, &ask, now);
                    prop_assert!(late != Vote::Yes, "it comes after its withdrawal");
                }
                Request::Pass(micros) => now += micros,
            }
            prop_assert!(node.last_token >= before.last_token);
            let live: Vec<Mode> =
                node.holds.iter().filter(|hold| hold.expires > now).map(|hold| hold.mode).collect();
            prop_assert!(live.len() < 2 || live.iter().all(|mode| *mode == Mode::Read));
        }
    }
}
