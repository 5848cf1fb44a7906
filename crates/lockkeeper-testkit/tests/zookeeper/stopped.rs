//! A process that is stopped while it holds, for longer than its session lives.

use lockkeeper_testkit::checker::FaultKind;
use lockkeeper_testkit::servers::zookeeper::ZooKeeperServer;

use crate::crew::{Crew, judged};
use crate::victim::{oversleeps, refused};

#[test]
fn a_stopped_holder_is_fenced_off_and_never_believes_again() {
    let server = ZooKeeperServer::start();
    let options = "session_timeout=2s&timeout=600ms";
    let mut crew = Crew::at(&format!("zk://127.0.0.1:{}/x?{options}", server.port()));
    oversleeps(&mut crew);
    let events = crew.finish(|| match server.ephemerals() {
        0 => Vec::new(),
        count => vec![format!("{count} nodes")],
    });
    let demands = refused().fault(FaultKind::HolderStopped, 1);
    judged(&events, &demands).expect_valid();
}
