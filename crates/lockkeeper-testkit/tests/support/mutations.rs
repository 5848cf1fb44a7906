//! Ways to spoil a good history, each with the rule it breaks.

use lockkeeper_testkit::checker::Rule;
use lockkeeper_testkit::history::{Answer, Call, Event, LatchAsk, Mode, What};

use crate::author::{Author, Ending, LIMIT, Latched, MS, Written};

/// Spoils a history at one of the places where it can, chosen by the number. Answers false where it cannot.
pub type Mutation = fn(&mut Author, usize) -> bool;

pub const ALL: &[(&str, Rule, Mutation)] = &[
    ("swapped tokens", Rule::S2, swapped_tokens),
    ("duplicate token", Rule::S2, duplicate_token),
    ("tokens restart", Rule::S2, tokens_restart),
    ("re-entry with another token", Rule::S2, reentry_token),
    ("stretched hold", Rule::S1, stretched_hold),
    ("dropped release", Rule::S1, dropped_release),
    ("extra permit", Rule::S1, extra_permit),
    ("reader beside writer", Rule::S1, reader_beside_writer),
    ("writer beside reader", Rule::S1, writer_beside_reader),
    ("renewed after its deadline", Rule::S1, revived),
    (
        "another holder after a break of unknown outcome",
        Rule::S1,
        beside_after_a_break,
    ),
    ("forged release", Rule::S4, forged_release),
    ("released twice", Rule::S4, released_twice),
    ("released by another", Rule::S4, released_by_another),
    ("gone before its deadline", Rule::S4, gone_early),
    ("depth off by one", Rule::S5, depth_off),
    ("release of all levels at once", Rule::S5, freed_too_early),
    ("lost update", Rule::S3, lost_update),
    ("late write accepted", Rule::S3, late_write),
    ("busy though free", Rule::L1, busy_though_free),
    ("granted too late", Rule::L1, granted_too_late),
    ("permit with a token of later", Rule::S2, permit_token),
    (
        "one token for readers of two processes",
        Rule::S2,
        token_of_two,
    ),
    ("re-read with another token", Rule::S2, reread_token),
    ("re-read depth off by one", Rule::S5, reread_depth),
    (
        "writer in the middle of a downgrade",
        Rule::S1,
        writes_in_between,
    ),
    ("a part of several", Rule::Together, a_part),
    ("several beside a holder of one", Rule::S1, beside_a_part),
    ("overtaken in line", Rule::Order, overtaken),
    ("latch counts twice", Rule::Latch, counts_twice),
    ("latch counts not at all", Rule::Latch, counts_nothing),
    ("latch opens too early", Rule::Latch, opens_early),
    ("latch closes again", Rule::Latch, closes_again),
    ("latch is waited for though open", Rule::Latch, waits_on),
];

fn permit_token(author: &mut Author, number: usize) -> bool {
    let places = holds_in(author, |mode| matches!(mode, Mode::Permits { .. }));
    let Some(hold) = pick(places, number) else {
        return false;
    };
    grant(author, hold.op).is_some_and(|(token, _)| {
        *token += 100_000;
        true
    })
}

fn token_of_two(author: &mut Author, number: usize) -> bool {
    let Some(hold) = pick(holds_in(author, |mode| mode == Mode::Read), number) else {
        return false;
    };
    let Some(first) = grant(author, hold.op).map(|(token, _)| *token) else {
        return false;
    };
    let op = author.acquire(hold.ok, hold.ok + MS / 4, "other", Mode::Read, 1);
    for event in author.events.iter_mut().rev().take(2) {
        event.process = "q".into();
    }
    grant(author, op).is_some_and(|(token, _)| {
        *token = first;
        true
    })
}

fn reread_token(author: &mut Author, number: usize) -> bool {
    let Some((_, inner)) = pick(author.downgrades.clone(), number) else {
        return false;
    };
    grant(author, inner).is_some_and(|(token, _)| {
        *token += 100_000;
        true
    })
}

fn reread_depth(author: &mut Author, number: usize) -> bool {
    let Some((_, inner)) = pick(author.downgrades.clone(), number) else {
        return false;
    };
    let release = releases_of(author, inner)[0];
    reanswer(author, release, Answer::Released)
}

fn writes_in_between(author: &mut Author, number: usize) -> bool {
    let Some((at, _)) = pick(author.downgrades.clone(), number) else {
        return false;
    };
    author.token += 1;
    let op = author.acquire(at, at + MS, "intruder", Mode::Write, 1);
    let release = author.release(at + 2 * MS, op, "intruder");
    author.answer(at + 3 * MS, release, Answer::Released);
    true
}

fn a_part(author: &mut Author, number: usize) -> bool {
    let Some(ops) = pick(author.together.clone(), number) else {
        return false;
    };
    let [kept, refused] = match number % 4 < 2 {
        true => ops,
        false => [ops[1], ops[0]],
    };
    let release = releases_of(author, refused)[0];
    author.events.retain(|event| match event.what {
        What::Invoke { op, .. } | What::Ok { op, .. } => op != release,
        _ => true,
    });
    kept != refused && reanswer(author, refused, Answer::Busy)
}

fn beside_a_part(author: &mut Author, number: usize) -> bool {
    let Some(ops) = pick(author.together.clone(), number) else {
        return false;
    };
    let mut events = author.events.iter();
    let granted = events.find(|e| matches!(e.what, What::Ok { op, .. } if op == ops[1]));
    let Some(at) = granted.map(|event| event.at) else {
        return false;
    };
    author.token += 1;
    let op = author.ask(at, "b", "intruder", Mode::Exclusive, None);
    author.grant(at + MS, op, 1);
    true
}

/// The one that was granted last was in line first.
fn overtaken(author: &mut Author, number: usize) -> bool {
    let Some([second, third]) = pick(author.lines.clone(), number) else {
        return false;
    };
    let asked = |event: &&mut Event| match event.what {
        What::Invoke { op, .. } => op == second || op == third,
        _ => false,
    };
    let mut asked: Vec<&mut Event> = author.events.iter_mut().filter(asked).collect();
    let [first, last] = &mut asked[..] else {
        return false;
    };
    std::mem::swap(&mut first.at, &mut last.at);
    true
}

fn a_latch(author: &Author, number: usize) -> Option<Latched> {
    pick(author.latched.clone(), number)
}

/// One count-down less was asked for, and yet the others left what they did.
fn counts_twice(author: &mut Author, number: usize) -> bool {
    let Some(latch) = a_latch(author, number) else {
        return false;
    };
    let Some(gone) = latch.count_downs.first().copied() else {
        return false;
    };
    author.events.retain(|event| match event.what {
        What::Invoke { op, .. } | What::Ok { op, .. } => op != gone,
        _ => true,
    });
    true
}

fn counts_nothing(author: &mut Author, number: usize) -> bool {
    let Some(latch) = a_latch(author, number) else {
        return false;
    };
    let left = latch.count_downs.len() as u32 - 1;
    reanswer(author, latch.count_downs[1], Answer::Count(left))
}

fn opens_early(author: &mut Author, number: usize) -> bool {
    let Some(latch) = a_latch(author, number) else {
        return false;
    };
    let last = latch.count_downs.last().copied();
    let mut asked = author.events.iter();
    let asked = asked.find(|e| matches!(e.what, What::Invoke { op, .. } if Some(op) == last));
    let Some(at) = asked.map(|event| event.at) else {
        return false;
    };
    author.events.iter_mut().any(|event| match event.what {
        What::Ok { op, .. } if op == latch.wait => {
            event.at = at - MS / 2;
            true
        }
        _ => false,
    })
}

fn closes_again(author: &mut Author, number: usize) -> bool {
    a_latch(author, number).is_some_and(|latch| reanswer(author, latch.read, Answer::Count(1)))
}

fn waits_on(author: &mut Author, number: usize) -> bool {
    let Some(Latched { name, opened, .. }) = a_latch(author, number) else {
        return false;
    };
    let ask = LatchAsk::Wait;
    let wait = author.call(opened + MS, Call::Latch { latch: name, ask });
    author.answer(opened + 500 * MS, wait, Answer::Count(0));
    true
}

fn pick<T: Clone>(items: Vec<T>, number: usize) -> Option<T> {
    (!items.is_empty()).then(|| items[number % items.len()].clone())
}

/// Pairs of an exclusive hold and the exclusive hold right after it, of different owners.
fn pairs(author: &Author) -> Vec<(Written, Written)> {
    let pairs = author.holds.windows(2);
    let both = |pair: &&[Written]| {
        pair.iter().all(|h| h.mode.is_alone() && !h.reentered) && pair[0].owner != pair[1].owner
    };
    let pairs = pairs.filter(both);
    pairs.map(|p| (p[0].clone(), p[1].clone())).collect()
}

fn grant(author: &mut Author, wanted: u64) -> Option<(&mut u64, &mut u64)> {
    author.events.iter_mut().find_map(|e| match &mut e.what {
        What::Ok {
            op,
            answer: Answer::Granted {
                token, deadline, ..
            },
        } if *op == wanted => Some((token, deadline)),
        _ => None,
    })
}

fn swapped_tokens(author: &mut Author, number: usize) -> bool {
    let Some((a, b)) = pick(pairs(author), number) else {
        return false;
    };
    let token = |author: &mut Author, op| grant(author, op).map_or(0, |(token, _)| *token);
    let (first, second) = (token(author, a.op), token(author, b.op));
    for (op, new) in [(a.op, second), (b.op, first)] {
        if let Some((token, _)) = grant(author, op) {
            *token = new;
        }
    }
    true
}

fn duplicate_token(author: &mut Author, number: usize) -> bool {
    let Some((a, b)) = pick(pairs(author), number) else {
        return false;
    };
    let first = grant(author, a.op).map(|(token, _)| *token);
    if let (Some((token, _)), Some(first)) = (grant(author, b.op), first) {
        *token = first;
    }
    true
}

fn tokens_restart(author: &mut Author, number: usize) -> bool {
    let Some((_, b)) = pick(pairs(author), number) else {
        return false;
    };
    for event in author.events.iter_mut().filter(|e| e.at >= b.ok) {
        if let What::Ok {
            answer: Answer::Granted { token, .. },
            ..
        } = &mut event.what
        {
            *token -= 1_000;
        }
    }
    true
}

/// The inner acquire of a re-entered hold, and its release.
fn reentries(author: &Author) -> Vec<(u64, u64)> {
    let inner = author.events.iter().filter_map(|e| match &e.what {
        What::Ok {
            op,
            answer: Answer::Granted { depth: 2, .. },
        } => Some(*op),
        _ => None,
    });
    let release = |hold: u64| releases_of(author, hold).first().copied();
    inner.filter_map(|op| Some((op, release(op)?))).collect()
}

fn reentry_token(author: &mut Author, number: usize) -> bool {
    let Some((inner, _)) = pick(reentries(author), number) else {
        return false;
    };
    grant(author, inner).is_some_and(|(token, _)| {
        *token += 100_000;
        true
    })
}

fn depth_off(author: &mut Author, number: usize) -> bool {
    let Some((_, release)) = pick(reentries(author), number) else {
        return false;
    };
    reanswer(author, release, Answer::StillHeld { depth: 2 })
}

fn freed_too_early(author: &mut Author, number: usize) -> bool {
    let Some((_, release)) = pick(reentries(author), number) else {
        return false;
    };
    reanswer(author, release, Answer::Released)
}

fn reanswer(author: &mut Author, wanted: u64, new: Answer) -> bool {
    author.events.iter_mut().any(|event| match &mut event.what {
        What::Ok { op, answer } if *op == wanted => {
            *answer = new.clone();
            true
        }
        _ => false,
    })
}

fn releases_of(author: &Author, wanted: u64) -> Vec<u64> {
    let releases = author.events.iter().filter_map(|e| match &e.what {
        What::Invoke {
            op,
            call: Call::Release { hold, .. },
        } if *hold == wanted => Some(*op),
        _ => None,
    });
    releases.collect()
}

/// Pairs of which the first was released while its lease still ran beyond the start of the second.
fn released_pairs(author: &Author) -> Vec<(Written, Written)> {
    let pairs = pairs(author).into_iter();
    pairs
        .filter(|(a, b)| a.ending == Ending::Release && a.ok + 100 * MS > b.ok + 5 * MS)
        .collect()
}

fn stretched_hold(author: &mut Author, number: usize) -> bool {
    let Some((a, b)) = pick(released_pairs(author), number) else {
        return false;
    };
    let release = releases_of(author, a.op)[0];
    for event in &mut author.events {
        match event.what {
            What::Invoke { op, .. } if op == release => event.at = b.ok + MS / 2,
            What::Ok { op, .. } if op == release => event.at = b.ok + MS,
            _ => {}
        }
    }
    true
}

fn dropped_release(author: &mut Author, number: usize) -> bool {
    let Some((a, _)) = pick(released_pairs(author), number) else {
        return false;
    };
    let release = releases_of(author, a.op)[0];
    author.events.retain(|event| match event.what {
        What::Invoke { op, .. } | What::Ok { op, .. } => op != release,
        _ => true,
    });
    true
}

fn holds_in(author: &Author, wanted: fn(Mode) -> bool) -> Vec<Written> {
    let holds = author.holds.iter();
    holds.filter(|hold| wanted(hold.mode)).cloned().collect()
}

fn intrude(author: &mut Author, hold: Option<Written>, mode: Mode) -> bool {
    let Some(hold) = hold else {
        return false;
    };
    author.token += 1;
    author.acquire(hold.ok, hold.ok + MS / 4, "intruder", mode, 1);
    true
}

/// A break that was over before ends nobody's hold, whatever became of it.
fn beside_after_a_break(author: &mut Author, number: usize) -> bool {
    // Not one that may have been handed on since before the break.
    let hold = pick(holds_in(author, |mode| mode == Mode::Write), number);
    let Some(first) = author.events.iter().map(|event| event.at).min() else {
        return false;
    };
    let broken = author.call(first - 2 * MS, Call::Break { lock: "a".into() });
    let (op, reason) = (broken, String::new());
    author.push(first - MS, What::Unknown { op, reason });
    intrude(author, hold, Mode::Fair)
}

fn extra_permit(author: &mut Author, number: usize) -> bool {
    let places = holds_in(author, |mode| matches!(mode, Mode::Permits { .. }));
    let mode = Mode::Permits {
        limit: LIMIT,
        count: LIMIT,
    };
    let place = pick(places, number);
    intrude(author, place, mode)
}

fn reader_beside_writer(author: &mut Author, number: usize) -> bool {
    let place = pick(holds_in(author, |mode| mode.is_alone()), number);
    intrude(author, place, Mode::Read)
}

fn writer_beside_reader(author: &mut Author, number: usize) -> bool {
    let place = pick(holds_in(author, |mode| mode == Mode::Read), number);
    intrude(author, place, Mode::Exclusive)
}

fn revived(author: &mut Author, number: usize) -> bool {
    let mut places = holds_in(author, |mode| mode.is_alone());
    places.retain(|hold| matches!(hold.ending, Ending::Crash | Ending::Lost));
    let Some(hold) = pick(places, number) else {
        return false;
    };
    let renew = author.call(hold.end - 20 * MS, Call::Renew { hold: hold.op });
    let deadline = hold.end + 80 * MS;
    author.answer(hold.end + MS / 2, renew, Answer::Renewed { deadline });
    true
}

fn forged_release(author: &mut Author, number: usize) -> bool {
    let mut places: Vec<Written> = pairs(author).into_iter().map(|(a, _)| a).collect();
    places.retain(|hold| hold.ending == Ending::Late);
    let Some(hold) = pick(places, number) else {
        return false;
    };
    let release = releases_of(author, hold.op)[0];
    reanswer(author, release, Answer::Released)
}

fn released(author: &Author, number: usize) -> Option<Written> {
    let mut places = holds_in(author, |_| true);
    places.retain(|hold| hold.ending == Ending::Release);
    pick(places, number)
}

fn released_twice(author: &mut Author, number: usize) -> bool {
    let Some(hold) = released(author, number) else {
        return false;
    };
    let release = author.release(hold.end + MS, hold.op, &hold.owner);
    author.answer(hold.end + 2 * MS, release, Answer::Released);
    true
}

fn released_by_another(author: &mut Author, number: usize) -> bool {
    let Some(hold) = released(author, number) else {
        return false;
    };
    let release = author.release(hold.end - MS, hold.op, "thief");
    author.answer(hold.end, release, Answer::Released);
    true
}

fn gone_early(author: &mut Author, number: usize) -> bool {
    let Some(hold) = released(author, number) else {
        return false;
    };
    let release = releases_of(author, hold.op)[0];
    reanswer(author, release, Answer::NotHeld)
}

fn lost_update(author: &mut Author, number: usize) -> bool {
    let mut writes: Vec<&mut u64> = Vec::new();
    let mut accepted = Vec::new();
    for event in &author.events {
        if let What::Ok {
            op,
            answer: Answer::Accepted { seq },
        } = event.what
            && seq > 1
        {
            accepted.push(op);
        }
    }
    for event in &mut author.events {
        if let What::Invoke {
            op,
            call: Call::Write { base, .. },
        } = &mut event.what
            && accepted.contains(op)
        {
            writes.push(base);
        }
    }
    if writes.is_empty() {
        return false;
    }
    let chosen = number % writes.len();
    *writes[chosen] -= 1;
    true
}

fn late_write(author: &mut Author, number: usize) -> bool {
    let refused = author.events.iter().filter_map(|e| match e.what {
        What::Ok {
            op,
            answer: Answer::Refused { .. },
        } => Some(op),
        _ => None,
    });
    let Some(op) = pick(refused.collect(), number) else {
        return false;
    };
    reanswer(author, op, Answer::Accepted { seq: 1_000 })
}

fn busy_though_free(author: &mut Author, _: usize) -> bool {
    let at = author.now() + 500 * MS;
    let op = author.call(
        at,
        Call::Acquire {
            lock: "a".into(),
            owner: "unlucky".into(),
            mode: Mode::Exclusive,
            together: None,
        },
    );
    author.answer(at + MS, op, Answer::Busy);
    true
}

fn granted_too_late(author: &mut Author, _: usize) -> bool {
    let at = author.now();
    author.token += 1;
    author.acquire(at, at + 500 * MS, "unlucky", Mode::Exclusive, 1);
    true
}
