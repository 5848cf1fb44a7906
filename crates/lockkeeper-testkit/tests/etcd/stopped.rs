//! A process that is stopped while it holds, for longer than its lease lives.

use lockkeeper_testkit::checker::FaultKind;
use lockkeeper_testkit::servers::etcd::EtcdServer;

use crate::crew::{Crew, judged};
use crate::victim::{oversleeps, refused};

#[test]
fn a_stopped_holder_is_fenced_off_and_never_believes_again() {
    let server = EtcdServer::start();
    let mut crew = Crew::at(&format!("{}?timeout=600ms", server.url("x")));
    oversleeps(&mut crew);
    let events = crew.finish(|| {
        let mut keys = server.keys("x/");
        keys.retain(|key| !key.starts_with("x/.lockkeeper/"));
        keys
    });
    let demands = refused().fault(FaultKind::HolderStopped, 1);
    judged(&events, &demands).expect_valid();
}
