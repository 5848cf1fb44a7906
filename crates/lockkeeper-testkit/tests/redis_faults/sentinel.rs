//! A master that Sentinels replace while many processes take locks on it.

use lockkeeper_testkit::servers::proxy::Proxy;
use lockkeeper_testkit::servers::redis::RedisServer;
use lockkeeper_testkit::servers::replicated::{Replicated, SERVICE};

use crate::crew::{Crew, Watcher, connections, left_on};
use crate::crews::{Crews, TRUSTING, believes_in_vain, shown_unsafe, victim};

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
fn the_master_is_replaced_and_holders_die_under_load() {
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
    crews.lose_holders();
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

/// Cuts a master off from its replicas and from the Sentinels that would make it one: what it grants now, only it has.
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

#[test]
fn a_lock_that_no_replica_had_is_granted_again_and_the_fence_holds() {
    let servers = Replicated::with_sentinels();
    let sentinels = servers.sentinels().iter();
    let proxies: Vec<Proxy> = sentinels.map(|one| Proxy::to(one.port())).collect();
    let hosts = proxies
        .iter()
        .map(|one| format!("127.0.0.1:{}", one.port()));
    let hosts: Vec<String> = hosts.collect();
    // The way of those who will not hear of the new master.
    let secluded = format!("redis+sentinel://{}/{SERVICE}", hosts.join(","));
    let crews = TRUSTING.map(|kind| {
        let mut crew = Crew::at(&kind.url(&servers.url(), "", 2));
        let url = crew.url();
        crew.load(2, &url);
        crew.work(30);
        let url = kind.strict().url(&servers.url(), "", 2);
        let watcher = Watcher::new(&url);
        let strict = crew.holder("strict", &url, "2s", &["--patience", "2s"]);
        strict.expect("held");
        (crew, watcher, strict, kind)
    });
    let old = servers.master();
    cut_off(&servers.servers()[old]);
    let mut scenes = crews.map(|(crew, watcher, mut strict, kind)| {
        // A client that asks for replicas is told in time that they have nothing of it, and refused what others get.
        strict.expect("lost");
        strict.tell("release").expect("listens");
        strict.expect_one(&["released", "not-held"]);
        strict.tell("acquire").expect("listens");
        let refused = strict.expect_one(&["failed", "held", "busy"]);
        assert!(!refused.starts_with("held"), "{refused}");
        assert!(strict.wait().expect("ends"));
        let error = watcher.take("b").expect_err("nobody confirms");
        let text = error.to_string();
        assert!(text.contains("0 of 2 replicas confirmed"), "{text}");
        let victim = victim(&crew, &kind.url(&secluded, "", 2));
        (crew, victim)
    });
    proxies.iter().for_each(Proxy::refuse);
    let new = servers.fail_over();
    for (crew, victim) in &mut scenes {
        assert!(believes_in_vain(crew, victim), "who told it?");
        crew.work(60);
    }
    let (old, new) = (&servers.servers()[old], &servers.servers()[new]);
    assert_eq!(old.info("role").as_deref(), Some("master"));
    assert!(is_used(old) && is_used(new), "each serves its own");
    let all = ["ACL", "SETUSER", "default", "+@all"];
    assert_eq!(old.command(&all), "+OK\r\n");
    proxies.iter().for_each(Proxy::heal);
    shown_unsafe(scenes, || leftovers(&servers));
}
