//! Histories on one Redis server, in both dialects.

use std::time::Duration;

use lockkeeper_testkit::checker::Kind;
use lockkeeper_testkit::history::{Event, Fault, What};
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::proxy::{Proxy, Way};
use lockkeeper_testkit::servers::redis::{RedisOptions, RedisServer};

use crate::crew::left_on;
use crate::crowd::Crowd;
use crate::place::Place;
use crate::stage::{ALL_KINDS, Stage, play};
use crate::trouble::{OF_PROCESSES, OF_THE_WAY, Trouble, chosen};

struct Redis {
    server: RedisServer,
    proxy: Proxy,
    query: &'static str,
}

#[test]
fn every_rule_holds_on_redis() {
    play("redis", 3, 2, |_| Redis::start("?response_timeout=600ms"));
}

#[test]
fn every_rule_holds_on_redis_in_the_plain_dialect() {
    play("plain", 2, 1, |_| {
        Redis::start("?dialect=plain&response_timeout=600ms")
    });
}

/// A request whose reply is lost may have been done.
#[test]
fn a_latch_whose_setting_has_an_unknown_outcome_is_opened_in_the_end() {
    let redis = Redis::start("?response_timeout=600ms");
    let url = redis.url(redis.proxy.port());
    let mut crowd = Crowd::new(Place::at(&url), &url, 1, None);
    // The server then knows the script, and nobody has to be asked for it.
    crowd.latch_that_lacks(1);
    redis.proxy.replies(Way::Held);
    crowd.latch_that_lacks(1);
    redis.proxy.heal();
    crowd.until("it is set", || {
        let left = left_on(&redis.server);
        left.iter().any(|key| key.contains("latch2"))
    });
    let events = crowd.finish(|| redis.leftovers());
    let told = |event: &Event| matches!(&event.what, What::Unknown { .. });
    assert!(events.iter().any(told), "{events:?}");
    let left = events
        .iter()
        .filter(|event| matches!(event.what, What::Left { .. }));
    assert_eq!(left.collect::<Vec<_>>(), Vec::<&Event>::new());
}

impl Redis {
    fn start(query: &'static str) -> Redis {
        let server = RedisServer::start_with(RedisOptions {
            durable: true,
            ..RedisOptions::default()
        });
        Redis {
            proxy: Proxy::to(server.port()),
            server,
            query,
        }
    }

    fn url(&self, port: u16) -> String {
        format!("redis://127.0.0.1:{port}/0{}", self.query)
    }
}

impl Stage for Redis {
    fn menu(&self) -> Vec<Trouble> {
        let own = [
            Trouble::Refused,
            Trouble::Silent,
            Trouble::ServerStopped,
            Trouble::ServerRestarted,
            Trouble::ClientsKilled,
            Trouble::ScriptsFlushed,
            Trouble::ClientsPaused,
            Trouble::Visitor,
        ];
        chosen(&[&OF_PROCESSES, &OF_THE_WAY, &own])
    }

    fn place(&mut self) -> Place {
        Place::at(&self.url(self.proxy.port()))
    }

    fn straight(&self, _: &Place) -> String {
        self.url(self.server.port())
    }

    fn make(&mut self, trouble: Trouble, crowd: &mut Crowd, time: Duration, random: &mut Random) {
        let (server, proxy) = (&mut self.server, &self.proxy);
        let count = |answer: String| -> u64 {
            let number = answer.trim().trim_start_matches(':').parse();
            number.unwrap_or_default()
        };
        match trouble {
            Trouble::ServerStopped => {
                server.pause();
                std::thread::sleep(time);
                server.resume();
            }
            Trouble::ServerRestarted => {
                server.kill();
                std::thread::sleep(time / 3);
                server.restart();
            }
            Trouble::ClientsKilled => {
                let kill = |kind| count(server.command(&["CLIENT", "KILL", "TYPE", kind]));
                assert!(kill("normal") + kill("pubsub") > 0, "nobody was connected");
            }
            Trouble::ScriptsFlushed => {
                for _ in 0..5 {
                    server.command(&["SCRIPT", "FLUSH"]);
                    crowd.work(5);
                }
            }
            Trouble::ClientsPaused => {
                let time = time.as_millis().to_string();
                server.command(&["CLIENT", "PAUSE", &time, "ALL"]);
                server.command(&["PING"]);
            }
            Trouble::Refused => {
                proxy.refuse();
                std::thread::sleep(time);
                proxy.heal();
            }
            Trouble::Silent => {
                let before = proxy.stopped();
                proxy.black_hole();
                std::thread::sleep(time);
                crowd.until("something is lost", || proxy.stopped() > before);
                proxy.heal();
                proxy.cut();
            }
            other => on_the_way(other, &[proxy], crowd, time, random),
        }
        crowd.bitten(&format!("{trouble:?}"));
    }

    fn leftovers(&self) -> Vec<String> {
        left_on(&self.server)
    }

    fn kinds(&self) -> &'static [Kind] {
        match self.query.contains("plain") {
            true => &[Kind::Exclusive, Kind::Together, Kind::Reentered],
            false => ALL_KINDS,
        }
    }
}

/// Does something to the ways to some servers.
pub fn on_the_way(
    trouble: Trouble,
    proxies: &[&Proxy],
    crowd: &Crowd,
    time: Duration,
    random: &mut Random,
) {
    let stopped = || -> usize { proxies.iter().map(|proxy| proxy.stopped()).sum() };
    let before = stopped();
    match trouble {
        Trouble::Cut => proxies.iter().for_each(|proxy| proxy.cut()),
        Trouble::RepliesLost => {
            let lost = || -> usize { proxies.iter().map(|proxy| proxy.lost_replies()).sum() };
            let before = lost();
            for proxy in proxies {
                proxy.lose_replies("$1\r\na\r\n", 1 + random.below(3) as usize);
            }
            crowd.until("a reply is lost", || lost() > before);
            crowd.driver.fault(Fault::ReplyLost);
        }
        // What was sent comes when its sender has given up on it, perhaps long after others were granted the lock.
        Trouble::LateRequests | Trouble::LateReplies => {
            for proxy in proxies {
                match trouble {
                    Trouble::LateRequests => proxy.requests(Way::Held),
                    _ => proxy.replies(Way::Held),
                }
            }
            std::thread::sleep(time);
            crowd.until("something is late", || stopped() > before);
        }
        // Each is told its outcome, or that nobody knows it, and does nothing after that.
        Trouble::BrokenLate => {
            let breaks = crowd.breaks_on_the_way();
            for proxy in proxies {
                proxy.requests(Way::Held);
            }
            let breaks = breaks.start();
            std::thread::sleep(time);
            crowd.until("something is late", || stopped() > before);
            proxies.iter().for_each(|proxy| proxy.heal());
            breaks.end();
        }
        Trouble::Slow => {
            for proxy in proxies {
                let longest = Duration::from_millis(80);
                proxy.replies(Way::Slow(random.between(Duration::ZERO, longest)));
            }
            std::thread::sleep(time);
        }
        other => unreachable!("{other:?} is none of the way"),
    }
    proxies.iter().for_each(|proxy| proxy.heal());
}
