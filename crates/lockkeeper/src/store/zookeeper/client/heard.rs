//! Until when the leader keeps the session, as far as what was answered says: pure.
//!
//! A follower tells its leader every half tick which sessions it heard of. So at a write the leader knows of the packets that
//! came half a tick earlier. A tick is at most half of the session's time-out T. If a packet that was answered a quarter of T
//! before the write was sent at most a third of T before it, the session lives for two thirds of T from the write on. The leader
//! hears itself of a session that is opened, at the first connection and at each later one.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Moment;

/// What was answered on one connection.
#[derive(Debug)]
pub struct Heard {
    timeout: Duration,
    /// When the session was asked for.
    opened: Moment,
    /// When answers came, and when what they answer was sent; not all of them.
    answers: VecDeque<(Moment, Moment)>,
}

impl Heard {
    /// A connection whose session, with this time-out, was asked for then.
    pub fn new(timeout: Duration, opened: Moment) -> Heard {
        Heard {
            timeout,
            opened,
            answers: VecDeque::new(),
        }
    }

    /// An answer came now to what was sent then.
    pub fn note(&mut self, sent: Moment, now: Moment) {
        let last = self.answers.back();
        if last.is_none_or(|(came, _)| now.since(*came) >= self.timeout / 96) {
            self.answers.push_back((now, sent));
        }
        // Of those that are old enough, the latest one says all.
        while self
            .answers
            .get(1)
            .is_some_and(|next| self.is_told(next, now))
        {
            self.answers.pop_front();
        }
    }

    /// Whether the leader knows of it at a write that is sent now.
    fn is_told(&self, answer: &(Moment, Moment), now: Moment) -> bool {
        now.since(answer.0) >= self.timeout / 4
    }

    /// Whether a write that is sent now, and committed, says that the session lives for two thirds of its time-out.
    pub fn proves(&self, now: Moment) -> bool {
        let told = self.answers.iter().rev();
        let last = told.filter(|one| self.is_told(one, now)).map(|one| one.1);
        let last = last.chain([self.opened]).max().unwrap_or(self.opened);
        now.since(last) <= self.timeout / 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Duration = Duration::from_secs(48);

    fn at(seconds: f64) -> Moment {
        Moment::from_nanos(1_000_000_000_000) + Duration::from_secs_f64(seconds)
    }

    #[test]
    fn a_write_needs_packets_before_it() {
        let mut heard = Heard::new(T, at(0.0));
        assert!(heard.proves(at(16.0)), "it was just opened");
        assert!(!heard.proves(at(16.1)), "and then nothing was said");
        for second in 1..60 {
            let now = f64::from(second);
            heard.note(at(now), at(now + 0.1));
            assert!(heard.proves(at(now + 0.5)), "{second}");
        }
        // Silence until 70, then a packet: the leader may not know of it before a quarter of T has passed.
        assert!(heard.proves(at(70.0)));
        heard.note(at(80.0), at(80.1));
        assert!(!heard.proves(at(80.2)));
        assert!(!heard.proves(at(92.0)));
        assert!(heard.proves(at(92.2)));
    }

    #[test]
    fn an_answer_that_comes_late_counts_from_when_it_was_asked_for() {
        let mut heard = Heard::new(T, at(0.0));
        heard.note(at(1.0), at(30.0));
        assert!(!heard.proves(at(50.0)));
        assert!(Heard::new(T, at(45.0)).proves(at(50.0)));
    }

    #[test]
    fn it_remembers_little() {
        let mut heard = Heard::new(T, at(0.0));
        for answer in 0..100_000 {
            let now = at(f64::from(answer) / 1000.0);
            heard.note(now, now);
        }
        assert!(heard.answers.len() < 30, "{}", heard.answers.len());
        assert!(heard.proves(at(100.0)));
    }
}
