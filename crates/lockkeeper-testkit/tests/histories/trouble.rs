//! What can happen.

use lockkeeper_testkit::checker::FaultKind;

/// A fault, or something that a program may do at any time. All of it is to be survived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    // Processes.
    HolderKilled,
    HolderStopped,
    AnyoneKilled,
    /// A program exits right after it dropped a guard.
    ExitAfterDrop,
    /// A program with a long lease drops its guard and ends: nothing stays held.
    Visitor,
    /// An administrator breaks locks.
    Broken,
    /// SQLite: a process is stopped while it has the file's write lock.
    StoppedInTransaction,
    // One server, and the way to it.
    Cut,
    Refused,
    Silent,
    RepliesLost,
    LateRequests,
    LateReplies,
    Slow,
    /// An administrator breaks locks, and the requests are late.
    BrokenLate,
    ServerStopped,
    ServerRestarted,
    ClientsKilled,
    ScriptsFlushed,
    ClientsPaused,
    // A quorum.
    NodeEmptied,
    MinorityStopped,
    MajorityStopped,
    /// ZooKeeper: a follower hears nobody, and answers clients.
    FollowerCutOff,
    /// ZooKeeper: a leader that the others have replaced, and that does not know it.
    LeaderDeposed,
    /// ZooKeeper: nodes get the last sequence number that there is, again and again.
    NumbersEnd,
    /// A server's clock is set, by up to an hour.
    ServerClockSet,
    /// The clock of some of the processes is set, by up to an hour.
    ClockSet,
    MinorityFull,
    MinoritySilent,
    /// A node wants a password that nobody has.
    SickPassword,
    /// A node is somebody's replica.
    SickReplica,
    /// A node does not say how long it is up.
    SickPermission,
}

/// What processes do and suffer, whatever the store.
pub const OF_PROCESSES: [Trouble; 5] = [
    Trouble::HolderKilled,
    Trouble::HolderStopped,
    Trouble::AnyoneKilled,
    Trouble::ExitAfterDrop,
    Trouble::Broken,
];

/// What happens on the way to a server.
pub const OF_THE_WAY: [Trouble; 6] = [
    Trouble::Cut,
    Trouble::RepliesLost,
    Trouble::LateRequests,
    Trouble::LateReplies,
    Trouble::Slow,
    Trouble::BrokenLate,
];

impl Trouble {
    /// What a history has to show of it.
    pub fn seen(self) -> FaultKind {
        match self {
            Trouble::HolderKilled => FaultKind::HolderKilled,
            Trouble::HolderStopped => FaultKind::HolderStopped,
            Trouble::Broken => FaultKind::Broken,
            other => FaultKind::Other(format!("{other:?}")),
        }
    }
}

/// Those of the menu that `LOCKKEEPER_TROUBLES` names, or all.
pub fn chosen(menu: &[&[Trouble]]) -> Vec<Trouble> {
    let mut menu: Vec<Trouble> = menu.concat();
    if let Ok(names) = std::env::var("LOCKKEEPER_TROUBLES") {
        let names: Vec<&str> = names.split(',').collect();
        menu.retain(|trouble| names.contains(&format!("{trouble:?}").as_str()));
        assert!(
            !menu.is_empty(),
            "LOCKKEEPER_TROUBLES names none of this store's"
        );
    }
    menu
}
