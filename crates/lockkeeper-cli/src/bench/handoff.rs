//! *handoff*: how long a lock that one process releases takes to be acquired by another that waits for it.

use std::time::Duration;

use anyhow::{Result, bail};
use lockkeeper::clock::Moment;
use lockkeeper::store::Reach;

use super::Bench;
use super::lap::Window;
use super::network::Network;
use super::progress::Progress;
use super::report::{Entry, Figure, Quantiles, Reference, Target};
use super::side::Series;
use super::tally::{Tally, Times, median};
use super::workers::{Answer, Note, Order, Worker};

/// How long the lock is held at least: the other process waits for it by then.
const HOLD: Duration = Duration::from_millis(2);

const PING: &str = "PING, as rarely as the lock changes hands";
const PING_AT_ONCE: &str = "PING, sent as soon as the last was answered";
const PIPE: &str = "a line through a pipe to another process";

impl Bench {
    pub fn handoff(&self) -> Result<Vec<Entry>> {
        if self.capabilities.reach == Reach::Process {
            return Ok(vec![self.one_process_only("handoff")]);
        }
        let name = self.name("handoff");
        let mut workers = [self.worker()?, self.worker()?];
        let rounds = self.rounds;
        let progress = Progress::new("handoff", u64::from(rounds.count) + 1);
        let warm = rounds.length.min(Duration::from_millis(200));
        self.take_turns(&mut workers, &name, warm)?;
        progress.step();
        let (mut pings, mut handoffs) = (Pings::new(), Times::new());
        // Of a server, also back to back.
        let mut at_once = Pings::new();
        let mut rates = Vec::new();
        let mut total: Option<Tally> = None;
        for _ in 0..rounds.count {
            let length = rounds.length / 4;
            let (ping, busy) = match (&self.redis, &self.network) {
                (Some(server), _) => (
                    server.ping(&self.runtime, length, HOLD)?,
                    Some(server.ping(&self.runtime, length, Duration::ZERO)?),
                ),
                (None, Some(server)) => (server.ping(length, HOLD)?, None),
                (None, None) => (ping(&mut workers, length)?, None),
            };
            let (tally, handoff) = self.take_turns(&mut workers, &name, rounds.length)?;
            pings.add(&ping, &handoff);
            if let Some(busy) = busy {
                at_once.add(&busy, &handoff);
            }
            rates.push(tally.rate());
            handoffs.add(&handoff);
            match &mut total {
                Some(total) => total.then(&tally),
                None => total = Some(tally),
            }
            progress.step();
        }
        let Some(total) = total else {
            bail!("there was no round");
        };
        let series = Series { rates, total };
        let what = match (&self.redis, &self.network) {
            (Some(_), _) => PING,
            (None, Some(server)) => server.ping_is(),
            (None, None) => PIPE,
        };
        let mut figure = Figure::of("handoff", "async", 1, &series, (what, &series));
        figure.reference = pings.reference(what);
        if self.redis.is_some() {
            figure.also = Some(at_once.reference(PING_AT_ONCE));
        }
        let seen = (handoffs.count() > 0).then(|| Quantiles::of(&handoffs));
        let p50 = seen.map(|handoff| handoff.p50);
        figure.handoff_us = seen;
        let ratio = figure.reference.ratio;
        let aims = self.network.as_ref().map(Network::aims);
        let micros = aims.as_ref().and_then(|aims| aims.hand_off_micros);
        let round_trips = aims.as_ref().and_then(|aims| aims.hand_off_round_trips);
        figure.targets = vec![match (&self.redis, round_trips) {
            (Some(_), _) => Target::at_most("ratio", 8.0, ratio),
            (None, Some(round_trips)) => Target::at_most("ratio", round_trips, ratio),
            (None, None) => Target::at_most("handoff_us.p50", micros.unwrap_or(1000.0), p50),
        }];
        Ok(vec![Entry::Figure(Box::new(figure))])
    }

    /// Both processes acquire and release for one window.
    fn take_turns(
        &self,
        workers: &mut [Worker; 2],
        name: &str,
        length: Duration,
    ) -> Result<(Tally, Times)> {
        let window = Window::soon(length, self.rounds.hold.max(HOLD), 1);
        let mut tallies = Vec::new();
        let mut notes = Vec::new();
        for worker in workers.iter_mut() {
            worker.order(&Order::HandOff {
                name: name.to_owned(),
                window,
            })?;
        }
        for (at, worker) in workers.iter_mut().enumerate() {
            let Answer::HandedOff(tally, own) = worker.answer()? else {
                bail!("a worker answered something else");
            };
            tallies.push(tally);
            notes.extend(own.into_iter().map(|note| (at, note)));
        }
        let mut all = tallies.remove(0);
        tallies.into_iter().for_each(|tally| all.beside(tally));
        Ok((all, latencies(notes)))
    }
}

/// What hand-offs stand beside: round trips, and the ratios of the rounds.
struct Pings {
    times: Times,
    ratios: Vec<f64>,
}

impl Pings {
    fn new() -> Pings {
        Pings {
            times: Times::new(),
            ratios: Vec::new(),
        }
    }

    fn add(&mut self, pings: &Times, handoffs: &Times) {
        if handoffs.count() > 0 && pings.count() > 0 {
            let ratio = handoffs.quantile(0.5) / pings.quantile(0.5);
            self.ratios.push(ratio);
        }
        self.times.add(pings);
    }

    fn reference(&self, what: &'static str) -> Reference {
        Reference {
            what,
            pairs_per_second: None,
            p50_us: Some(self.times.quantile(0.5)),
            wait_p50_us: None,
            wait_p99_us: None,
            ratio: (!self.ratios.is_empty()).then(|| median(&self.ratios)),
        }
    }
}

/// From release to acquired, wherever the lock went to the other process while that waited.
fn latencies(mut notes: Vec<(usize, Note)>) -> Times {
    notes.sort_by_key(|(_, [_, acquired, _])| *acquired);
    let mut times = Times::new();
    for pair in notes.windows(2) {
        let [(from, [_, _, releasing]), (to, [asked, acquired, _])] = pair else {
            continue;
        };
        if from != to && asked < releasing {
            times.record(Moment::from_nanos(*acquired).since(Moment::from_nanos(*releasing)));
        }
    }
    times
}

/// Wakes one worker after the other through its pipe, as rarely as locks change hands: a process that was
/// just awake wakes sooner.
fn ping(workers: &mut [Worker; 2], length: Duration) -> Result<Times> {
    let mut times = Times::new();
    let end = Moment::now() + length;
    while Moment::now() < end || times.count() == 0 {
        for worker in workers.iter_mut() {
            std::thread::sleep(HOLD);
            times.record(worker.ping()?);
        }
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_waiting_process_is_handed_a_lock() {
        let ms = |t: u64| t * 1_000_000;
        let note = |at, asked, acquired, releasing| (at, [ms(asked), ms(acquired), ms(releasing)]);
        let times = latencies(vec![
            note(1, 1, 7, 9), // waited since 1, released at 5: 2 ms
            note(0, 0, 1, 5),
            note(1, 9, 10, 12),  // the same process again
            note(0, 13, 14, 15), // did not wait
        ]);
        assert_eq!(times.count(), 1);
        assert!((times.max() - 2000.0).abs() < 20.0);
    }
}
