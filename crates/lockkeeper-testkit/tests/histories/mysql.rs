//! Histories on one MariaDB server.

use std::time::Duration;

use lockkeeper_testkit::checker::Kind;
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::random::Random;
use lockkeeper_testkit::servers::mariadb::MariaDbServer;
use lockkeeper_testkit::servers::proxy::Proxy;

use crate::crowd::Crowd;
use crate::place::Place;
use crate::redis::on_the_way;
use crate::stage::{ALL_KINDS, Stage, play};
use crate::trouble::{OF_PROCESSES, OF_THE_WAY, Trouble, chosen};

/// The beginning of a short cut that grants, and the end of every transaction.
const REQUESTS: [&str; 2] = ["UPDATE lockkeeper_lock SET since", "COMMIT"];

struct MySql {
    server: MariaDbServer,
    proxy: Proxy,
}

#[test]
#[ignore = "waiters may starve on a very busy machine (docs/sql.md, not proven): `cargo xtask nightly` runs it"]
fn every_rule_holds_on_mysql() {
    play("mysql", 2, 2, |_| MySql::start());
}

impl MySql {
    fn start() -> MySql {
        let server = MariaDbServer::start();
        MySql {
            proxy: Proxy::to(server.port()),
            server,
        }
    }

    fn url(&self, port: u16) -> String {
        format!(
            "{}?response_timeout=600ms&max_lease=10m",
            self.server.url_at(port)
        )
    }
}

impl Stage for MySql {
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
                server.kill();
                std::thread::sleep(time / 3);
                server.restart();
            }
            Trouble::ClientsKilled => {
                assert!(server.kill_connections() > 0, "nobody was connected");
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
            Trouble::RepliesLost => {
                let before = proxy.lost_replies();
                let request = REQUESTS[random.below(2) as usize];
                proxy.lose_replies(request, 1 + random.below(3) as usize);
                crowd.until("a reply is lost", || proxy.lost_replies() > before);
                crowd.driver.fault(Fault::ReplyLost);
                proxy.heal();
            }
            other => on_the_way(other, &[proxy], crowd, time, random),
        }
        crowd.bitten(&format!("{trouble:?}"));
    }

    fn leftovers(&self) -> Vec<String> {
        let held = "SELECT 'hold', name FROM lockkeeper_lock WHERE claim IS NOT NULL AND expires > TIMESTAMPDIFF(MICROSECOND, \
             '1970-01-01', UTC_TIMESTAMP(6)) UNION ALL SELECT 'waiter', w.name FROM lockkeeper_waiter w JOIN lockkeeper_lock l ON \
             l.name = w.name WHERE w.until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) \
             UNION ALL SELECT 'shared', name FROM lockkeeper_hold WHERE expires > TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) \
             UNION ALL SELECT 'latch', name FROM lockkeeper_latch \
             UNION ALL SELECT 'connection', id FROM information_schema.processlist WHERE user = 'keeper'";
        match self.server.try_sql(held) {
            Ok(rows) => rows.lines().map(str::to_owned).collect(),
            Err(error) => vec![error],
        }
    }

    fn kinds(&self) -> &'static [Kind] {
        ALL_KINDS
    }
}
