//! Histories on one PostgreSQL server.

use std::time::Duration;

use lockkeeper_testkit::checker::Kind;
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::postgres::PostgresServer;
use lockkeeper_testkit::servers::proxy::Proxy;

use crate::crowd::Crowd;
use crate::place::Place;
use crate::redis::on_the_way;
use crate::stage::{ALL_KINDS, Stage, play};
use crate::trouble::{OF_PROCESSES, OF_THE_WAY, Trouble, chosen};

struct Postgres {
    server: PostgresServer,
    proxy: Proxy,
}

#[test]
fn every_rule_holds_on_postgres() {
    play("postgres", 2, 2, |_| Postgres::start());
}

impl Postgres {
    fn start() -> Postgres {
        let server = PostgresServer::start();
        Postgres {
            proxy: Proxy::to(server.port()),
            server,
        }
    }

    /// A server that crashes grants at once: so that what is promised of a commit is what is judged.
    fn url(&self, port: u16) -> String {
        format!(
            "postgres://postgres@127.0.0.1:{port}/postgres?sit_out=never&response_timeout=600ms"
        )
    }
}

impl Stage for Postgres {
    fn menu(&self) -> Vec<Trouble> {
        let own = [
            Trouble::Refused,
            Trouble::Silent,
            Trouble::ServerStopped,
            Trouble::ServerRestarted,
            Trouble::ClientsKilled,
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
        match trouble {
            Trouble::ServerStopped => {
                server.pause();
                std::thread::sleep(time);
                server.resume();
            }
            Trouble::ServerRestarted => {
                server.stop_at_once();
                std::thread::sleep(time / 3);
                server.restart();
            }
            Trouble::ClientsKilled => {
                let killed = server.sql(
                    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'lockkeeper'",
                );
                assert_ne!(killed, ["0"], "nobody was connected");
            }
            Trouble::RepliesLost => {
                let before = proxy.lost_replies();
                proxy.lose_replies("E'a'", 1 + random.below(3) as usize);
                crowd.until("a reply is lost", || proxy.lost_replies() > before);
                crowd.driver.fault(Fault::ReplyLost);
                proxy.heal();
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
        self.server.sql(
            "WITH now AS (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS t)
             SELECT 'held ' || name FROM lockkeeper.lock, now WHERE claim IS NOT NULL AND expires > t
             UNION ALL SELECT 'hold ' || name FROM lockkeeper.hold, now WHERE expires > t
             UNION ALL SELECT 'waiter ' || name FROM lockkeeper.waiter, now WHERE until > t
             UNION ALL SELECT 'latch ' || name FROM lockkeeper.latch
             UNION ALL SELECT 'connection ' || pid FROM pg_stat_activity WHERE application_name = 'lockkeeper'",
        )
    }

    fn kinds(&self) -> &'static [Kind] {
        ALL_KINDS
    }
}
