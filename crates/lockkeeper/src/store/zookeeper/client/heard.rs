//! Until when the leader keeps the session, as far as what was answered says: pure.
//!
//! The leader ends a session, never a follower. It hears of one from a follower in the answers to its own pings alone, which it
//! sends every half tick; a tick is at most half of the session's time-out T. So three things have to come one after the other,
//! all on one connection, which ends when its follower changes its leader:
//!
//! 1. a packet of ours that was answered: the follower knows that the session lives;
//! 2. a quarter of T later, a request that goes round by the leader and was answered (an echo): between the two a ping of the
//!    leader's reached the follower, which answered it before it answered us;
//! 3. a write that is committed, sent after the echo was answered: the leader read the follower's answer to its ping before it,
//!    and had not ended the session by then.
//!
//! Then the leader ends the session no sooner than T after the packet of 1 was sent. If that is at most a third of T before
//! the write is sent, the session lives for two thirds of T from the write on, however late the write is answered. The leader
//! hears itself of a session that is opened, at the first connection and at each later one.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;

/// What a committed write needs before it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// It says that the session lives for two thirds of its time-out.
    Nothing,
    /// An echo may be enough.
    Echo,
    /// The session has to be opened anew.
    Opening,
}

/// What was answered on one connection.
#[derive(Debug)]
pub struct Heard {
    timeout: Duration,
    /// When the latest packet was sent that the leader has heard of, or the session asked for.
    told: Moment,
    /// When answers came, and when what they answer was sent; not all of them.
    answers: VecDeque<(Moment, Moment)>,
}

impl Heard {
    /// A connection whose session, with this time-out, was asked for then.
    pub fn new(timeout: Duration, opened: Moment) -> Heard {
        Heard {
            timeout,
            told: opened,
            answers: VecDeque::new(),
        }
    }

    /// An answer came now to what was sent then.
    pub fn note(&mut self, sent: Moment, now: Moment) {
        let last = self.answers.back();
        if last.is_none_or(|(came, _)| now.since(*came) >= self.timeout / 96) {
            self.answers.push_back((now, sent));
        }
        // These are too old to say anything.
        while self
            .answers
            .front()
            .is_some_and(|one| !self.is_fresh(one.1, now))
        {
            self.answers.pop_front();
        }
    }

    /// An answer came to what was sent then, and went round by the leader.
    pub fn echo(&mut self, sent: Moment) {
        self.told = self.told_by(sent).unwrap_or(self.told).max(self.told);
    }

    /// What an echo of a request that is sent then tells the latest of: when it was sent.
    fn told_by(&self, sent: Moment) -> Option<Moment> {
        let before = |one: &&(Moment, Moment)| sent.since(one.0) >= self.timeout / 4;
        self.answers.iter().filter(before).map(|one| one.1).max()
    }

    fn is_fresh(&self, sent: Moment, now: Moment) -> bool {
        now.since(sent) <= self.timeout / 3
    }

    /// What a write that is sent now needs.
    pub fn needs(&self, now: Moment) -> Need {
        if self.is_fresh(self.told, now) {
            return Need::Nothing;
        }
        match self.told_by(now) {
            Some(told) if self.is_fresh(told, now) => Need::Echo,
            _ => Need::Opening,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(48);

    fn at(seconds: f64) -> Moment {
        Moment::from_nanos(1_000_000_000_000) + Duration::from_secs_f64(seconds)
    }

    fn pinged(heard: &mut Heard, from: u32, to: u32) {
        for second in from..=to {
            let now = f64::from(second);
            heard.note(at(now), at(now + 0.1));
        }
    }

    #[test]
    fn a_write_needs_packets_and_then_an_echo_before_it() {
        let mut heard = Heard::new(T, at(0.0));
        assert_eq!(heard.needs(at(16.0)), Need::Nothing, "it was just opened");
        assert_eq!(
            heard.needs(at(16.1)),
            Need::Opening,
            "nothing was said since"
        );
        pinged(&mut heard, 1, 60);
        assert_eq!(heard.needs(at(60.5)), Need::Echo);
        heard.echo(at(60.5));
        assert_eq!(heard.needs(at(60.6)), Need::Nothing);
        // The packet at 48 was answered a quarter of T before that.
        assert_eq!(heard.needs(at(64.0)), Need::Nothing);
        assert_eq!(heard.needs(at(64.1)), Need::Echo);
        // Silence until 80, then packets: an echo says nothing of them before a quarter of T has passed.
        heard.note(at(80.0), at(80.1));
        heard.echo(at(80.2));
        assert_eq!(heard.needs(at(80.3)), Need::Opening);
        pinged(&mut heard, 81, 93);
        heard.echo(at(92.0));
        assert_eq!(heard.needs(at(92.0)), Need::Opening);
        heard.echo(at(92.2));
        assert_eq!(heard.needs(at(92.3)), Need::Nothing);
    }

    /// What the leader says does not reach the follower from 10 to 50. Pings are answered all the time, and the leader ends the
    /// session at 58. A write is sent at 46; the leader commits it, and it is answered at 50.
    #[test]
    fn pings_are_no_sign_of_the_leader() {
        let mut heard = Heard::new(T, at(0.0));
        pinged(&mut heard, 1, 9);
        heard.echo(at(9.5));
        pinged(&mut heard, 10, 46);
        assert_eq!(
            heard.needs(at(46.0)),
            Need::Echo,
            "46 + 32 is later than 58"
        );
        // An echo is answered late as well: it tells of packets that are too old by then.
        pinged(&mut heard, 47, 50);
        heard.echo(at(46.0));
        assert_eq!(heard.needs(at(50.1)), Need::Echo);
        // Now the leader is heard, and so has heard.
        heard.echo(at(50.1));
        assert_eq!(heard.needs(at(50.2)), Need::Nothing);
    }

    #[test]
    fn an_answer_that_comes_late_counts_from_when_it_was_asked_for() {
        let mut heard = Heard::new(T, at(0.0));
        heard.note(at(1.0), at(30.0));
        heard.echo(at(45.0));
        assert_ne!(heard.needs(at(45.1)), Need::Nothing);
        assert_eq!(Heard::new(T, at(45.0)).needs(at(50.0)), Need::Nothing);
    }

    #[test]
    fn it_remembers_little() {
        let mut heard = Heard::new(T, at(0.0));
        for answer in 0..100_000 {
            let now = at(f64::from(answer) / 1000.0);
            heard.note(now, now);
        }
        assert!(heard.answers.len() < 40, "{}", heard.answers.len());
        assert_eq!(heard.needs(at(100.0)), Need::Echo);
    }
}
