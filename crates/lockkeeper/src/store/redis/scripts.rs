//! The scripts: constant text, called by their hash and sent in full only when the server does not know it.

use std::sync::OnceLock;

/// A Lua script. Names and values travel in KEYS and ARGV only. It has two texts, as the command that publishes
/// is part of it.
#[derive(Debug)]
pub(in crate::store) struct Script {
    pub usual: Text,
    /// For a cluster with sharded channels, if that makes a difference.
    pub sharded: Option<Text>,
}

/// A text, and the hash by which a server knows it.
#[derive(Debug)]
pub(in crate::store) struct Text {
    pub text: &'static str,
    sha: OnceLock<String>,
}

impl Text {
    pub const fn new(text: &'static str) -> Text {
        Text {
            text,
            sha: OnceLock::new(),
        }
    }

    pub fn sha(&self) -> &str {
        let sha = || ::redis::Script::new(self.text).get_hash().to_owned();
        self.sha.get_or_init(sha)
    }
}

impl Script {
    pub fn text(&self, sharded: bool) -> &Text {
        match &self.sharded {
            Some(text) if sharded => text,
            _ => &self.usual,
        }
    }
}

/// A verb that can share a script with others of its dialect.
#[derive(Debug)]
pub(super) struct Verb {
    /// Its own script.
    pub script: &'static Script,
    /// How many keys it has.
    pub keys: usize,
    /// How a batch calls it; the number of its arguments follows from that.
    pub letter: &'static str,
    /// The script of its batches.
    pub batch: &'static Script,
}

macro_rules! files {
    ($($file:literal),+) => { concat!($(include_str!(concat!("scripts/", $file))),+) };
}

/// Scripts that publish.
macro_rules! publishing {
    ($($name:ident = $($file:literal),+;)*) => {$(
        pub(super) static $name: Script = Script {
            usual: Text::new(files!("publish.lua", $($file),+)),
            sharded: Some(Text::new(files!("publish_sharded.lua", $($file),+))),
        };
    )*};
}

/// Scripts that publish nothing, or on ordinary channels only.
macro_rules! silent {
    ($($name:ident = $text:expr;)*) => {$(
        pub(super) static $name: Script = Script {
            usual: Text::new($text),
            sharded: None,
        };
    )*};
}

publishing! {
    ACQUIRE = "alone.lua", "clock.lua", "time.lua", "fence.lua", "acquire_fast.lua", "queue.lua", "held.lua", "record.lua", "acquire.lua";
    RELEASE = "alone.lua", "release_fast.lua", "clock.lua", "time.lua", "fence.lua", "queue.lua", "pass.lua", "record.lua", "release.lua";
    WITHDRAW = "clock.lua", "time.lua", "fence.lua", "queue.lua", "record.lua", "withdraw.lua";
    INSPECT = "clock.lua", "time.lua", "fence.lua", "queue.lua", "record.lua", "permits.lua", "inspect.lua";
    BREAK = "clock.lua", "time.lua", "fence.lua", "queue.lua", "record.lua", "permits.lua", "broken.lua", "break.lua";
    LATCH = "clock.lua", "time.lua", "latch.lua";
}

silent! {
    RENEW = files!("clock.lua", "time.lua", "stay.lua", "renew.lua");
    PLAIN_ACQUIRE = files!("alone.lua", "clock.lua", "time.lua", "fence.lua", "plain_prolong.lua", "plain_acquire.lua");
    PLAIN_RELEASE = files!("alone.lua", "plain_release.lua");
    PLAIN_RENEW = files!("clock.lua", "time.lua", "stay.lua", "plain_prolong.lua", "plain_renew.lua");
    PLAIN_INSPECT = files!("plain_inspect.lua");
    PLAIN_BREAK = files!("clock.lua", "time.lua", "fence.lua", "broken.lua", "is_lock.lua", "plain_break.lua");
    // Nodes of a cluster run no batches: there is one text.
    BATCH = concat!(
        files!("publish.lua", "clock.lua", "time.lua", "fence.lua"),
        "local function try(k, a)\n",
        files!("acquire_fast.lua"),
        "end\nlocal function acquire(KEYS, ARGV)\n",
        files!("queue.lua", "held.lua", "record.lua", "acquire.lua"),
        "end\nlocal function let_go(k, a, least)\n",
        files!("release_fast.lua"),
        "end\nlocal function release(KEYS, ARGV)\n",
        files!("queue.lua", "pass.lua", "record.lua", "release.lua"),
        "end\nlocal VERBS = { a = { 4, 5, nil, try, acquire }, A = { 4, 9, nil, try, acquire }, B = { 4, 10, nil, try, acquire }, \
         r = { 4, 1, nil, let_go, release }, R = { 4, 9, nil, nil, release }, S = { 4, 10, nil, nil, release } }\n",
        files!("batch.lua")
    );
    PLAIN_BATCH = concat!(
        files!("clock.lua", "time.lua", "fence.lua", "plain_prolong.lua"),
        "local function acquire(k, a)\n",
        files!("plain_acquire.lua"),
        "end\nlocal function release(k, a)\n",
        files!("plain_release.lua"),
        "end\n",
        files!("plain_acquire_many.lua", "plain_release_many.lua"),
        "local VERBS = { a = { 2, 4, acquire_many, acquire }, r = { 1, 1, release_many, release } }\n",
        files!("batch.lua")
    );
}

macro_rules! verbs {
    ($($name:ident = $script:ident, $keys:literal, $letter:literal, $batch:ident;)*) => {$(
        pub(super) static $name: Verb = Verb {
            script: &$script,
            keys: $keys,
            letter: $letter,
            batch: &$batch,
        };
    )*};
}

// Letters, keys and arguments as VERBS above has them. Capitals have all arguments, the others the least; after A and R, the
// next letter has a label as well.
verbs! {
    TRY = ACQUIRE, 4, "a", BATCH;
    TRY_OR_QUEUE = ACQUIRE, 4, "A", BATCH;
    TRY_WITH_LABEL = ACQUIRE, 4, "B", BATCH;
    LET_GO = RELEASE, 4, "r", BATCH;
    LET_GO_AND_QUEUE = RELEASE, 4, "R", BATCH;
    LET_GO_AND_QUEUE_WITH_LABEL = RELEASE, 4, "S", BATCH;
    PLAIN_TRY = PLAIN_ACQUIRE, 2, "a", PLAIN_BATCH;
    PLAIN_LET_GO = PLAIN_RELEASE, 1, "r", PLAIN_BATCH;
}
