//! A master that Sentinels replace while many processes take locks on it.

use lockkeeper_testkit::checker::Rule;
use lockkeeper_testkit::history::Fault;
use lockkeeper_testkit::process::Taker;
use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::replicated::{Replicated, SERVICE};

use crate::crew::{Crew, Watcher, connections, demands, grants, judged, left_on};
use crate::crews::{Crews, Kind};

fn leftovers(servers: &Replicated) -> Vec<String> {
    let left = servers.servers().iter().flat_map(left_on);
    left.chain(servers.sentinels().iter().flat_map(connections))
        .collect()
}

/// Whether locks are taken on this server just now.
fn is_used(server: &RedisServer) -> bool {
    let clients = server.command(&["CLIENT", "LIST"]);
    clients.lines().any(|line| line.contains(" resp=3"))
}

#[test]
fn the_master_is_replaced_under_load() {
    let servers = Replicated::with_sentinels();
    let mut crews = Crews::start(&servers.url(), "", 2);
    for _ in 0..2 {
        let old = servers.master();
        let new = servers.fail_over();
        servers.wait_until_complete(new);
        crews.healed();
        crews.work(30);
        assert!(is_used(&servers.servers()[new]), "work is elsewhere");
        assert!(!is_used(&servers.servers()[old]), "the old one is used");
        crews.bitten("fail-over");
    }
    // The old master goes on for a moment after the new one is there, so that grants can be lost here, too.
    crews.finish(true, || leftovers(&servers));
}

#[test]
fn the_master_is_killed_under_load() {
    let mut servers = Replicated::with_sentinels();
    let mut crews = Crews::start(&servers.url(), "", 2);
    let old = servers.kill_master();
    crews.bites("killed");
    let new = servers.wait_for_another(old);
    crews.trusting_work(30);
    // The others are granted nothing before there are two replicas again.
    servers.server(old).restart();
    servers.wait_until_complete(new);
    crews.healed();
    crews.work(50);
    crews.finish(true, || leftovers(&servers));
}

/// Cuts a master off from its replicas and from whoever would make it one: what it grants now, only it has.
fn cut_off(master: &RedisServer) {
    // Not by stopping replicas: they would find it in their sockets later.
    let rules = ["ACL", "SETUSER", "default", "-psync", "-sync"];
    let rules = [&rules[..], &["-replicaof", "-slaveof"]].concat();
    assert_eq!(master.command(&rules), "+OK\r\n");
    assert_eq!(
        master.command(&["CLIENT", "KILL", "TYPE", "replica"]),
        ":2\r\n"
    );
    assert_eq!(master.info("connected_slaves").as_deref(), Some("0"));
}

/// A crew, a holder that cannot hear the Sentinels, and one that wants replicas to confirm.
struct Scene {
    crew: Crew,
    strict: Taker,
    watcher: Watcher,
    victim: Option<Taker>,
}

#[test]
fn a_lock_that_no_replica_had_is_granted_again_and_the_fence_holds() {
    let servers = Replicated::with_sentinels();
    let sentinels = servers.sentinels().iter();
    let proxies: Vec<Proxy> = sentinels.map(|one| Proxy::to(one.port())).collect();
    let hosts = proxies
        .iter()
        .map(|one| format!("127.0.0.1:{}", one.port()));
    let hosts: Vec<String> = hosts.collect();
    let secluded = format!("redis+sentinel://{}/{SERVICE}", hosts.join(","));
    let [redisson, plain] = [false, true].map(|plain| Kind {
        prefix: if plain { "p:" } else { "r:" },
        plain,
        strict: false,
    });
    let mut scenes = [&redisson, &plain].map(|kind| {
        let mut crew = Crew::at(&kind.url(&servers.url(), "", 2));
        let url = crew.url();
        crew.load(2, &url);
        let strict = Kind {
            strict: true,
            ..*kind
        };
        let url = strict.url(&servers.url(), "", 2);
        let watcher = Watcher::new(&url);
        let mut strict = crew.holder("strict", &url, "2s", &["--patience", "2s"]);
        strict.expect("held");
        strict.tell("release").expect("listens");
        strict.expect("released");
        crew.work(30);
        Scene {
            crew,
            strict,
            watcher,
            victim: None,
        }
    });
    let old = servers.master();
    cut_off(&servers.servers()[old]);
    for (scene, kind) in scenes.iter_mut().zip([&redisson, &plain]) {
        // Who asks for replicas is refused what the others get.
        scene.strict.tell("acquire").expect("listens");
        let refused = scene.strict.expect_one(&["failed", "held", "busy"]);
        assert!(!refused.starts_with("held"), "{refused}");
        let error = scene.watcher.take("b").expect_err("nobody confirms");
        let text = error.to_string();
        assert!(text.contains("0 of 2 replicas confirmed"), "{text}");
        let mut victim = scene
            .crew
            .holder("victim", &kind.url(&secluded, "", 2), "60s", &[]);
        victim.expect("held");
        victim.tell("read").expect("listens");
        victim.expect("read");
        scene.victim = Some(victim);
    }
    proxies.iter().for_each(Proxy::refuse);
    let new = servers.fail_over();
    for scene in &mut scenes {
        scene.crew.driver.fault(Fault::Other("fail-over".into()));
        scene.crew.healed();
        scene.crew.work(60);
        let victim = scene.victim.as_mut().expect("there is one");
        victim.tell("is-held").expect("listens");
        victim.expect("is-held true");
        victim.tell("write").expect("listens");
        victim.expect("refused");
    }
    let (old, new) = (&servers.servers()[old], &servers.servers()[new]);
    assert_eq!(old.info("role").as_deref(), Some("master"));
    assert!(is_used(old) && is_used(new), "each serves its own");
    assert_eq!(
        old.command(&["ACL", "SETUSER", "default", "+@all"]),
        "+OK\r\n"
    );
    proxies.iter().for_each(Proxy::heal);
    for scene in &mut scenes {
        let victim = scene.victim.as_mut().expect("there is one");
        victim.expect("lost");
        victim.tell("release").expect("listens");
        let said = victim.expect_one(&["not-held", "release-unknown", "released"]);
        assert!(!said.starts_with("released"), "{said}");
        assert!(victim.wait().expect("ends"));
        assert!(scene.strict.wait().expect("ends"));
        scene.crew.healed();
        scene.crew.work(30);
        scene.crew.stop();
    }
    for Scene {
        mut crew, watcher, ..
    } in scenes
    {
        drop(watcher);
        let events = crew.finish(|| leftovers(&servers));
        assert!(grants(&events) >= 100);
        let verdict = judged(&events, &demands());
        assert!(verdict.breaks(Rule::S1), "it was safe: {verdict}");
        let expected = [Rule::S1, Rule::S4].into();
        assert!(verdict.rules().is_subset(&expected), "{verdict}");
    }
}
