//! The scripts: constant text, called by their hash and sent in full only when the server does not know it.

use std::sync::LazyLock;

/// A Lua script. Names and values travel in KEYS and ARGV only.
#[derive(Debug)]
pub(super) struct Script {
    pub text: &'static str,
    pub sha: LazyLock<String>,
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

macro_rules! text {
    ($($file:literal),+) => { concat!($(include_str!(concat!("scripts/", $file))),+) };
}

macro_rules! scripts {
    ($($name:ident = $text:expr;)*) => {$(
        pub(super) static $name: Script = Script {
            text: $text,
            sha: LazyLock::new(|| ::redis::Script::new($name.text).get_hash().to_owned()),
        };
    )*};
}

scripts! {
    ACQUIRE = text!("time.lua", "fence.lua", "acquire_fast.lua", "record.lua", "acquire.lua");
    RELEASE = text!("release_fast.lua", "time.lua", "fence.lua", "record.lua", "release.lua");
    BATCH = concat!(
        text!("time.lua", "fence.lua"),
        "local function acquire(KEYS, ARGV)\n",
        text!("acquire_fast.lua", "record.lua", "acquire.lua"),
        "end\nlocal function release(KEYS, ARGV)\n",
        text!("release_fast.lua", "record.lua", "release.lua"),
        "end\nlocal VERBS = { a = { acquire, 4, 5 }, A = { acquire, 4, 9 }, r = { release, 4, 1 }, R = { release, 4, 8 } }\n",
        text!("batch.lua")
    );
    WITHDRAW = text!("time.lua", "fence.lua", "record.lua", "withdraw.lua");
    RENEW = text!("time.lua", "renew.lua");
    INSPECT = text!("time.lua", "fence.lua", "record.lua", "inspect.lua");
    BREAK = text!("time.lua", "fence.lua", "record.lua", "break.lua");
    LATCH = text!("time.lua", "latch.lua");
    PLAIN_ACQUIRE = text!("time.lua", "fence.lua", "plain_acquire.lua");
    PLAIN_RELEASE = text!("plain_release.lua");
    PLAIN_BATCH = concat!(
        text!("time.lua", "fence.lua"),
        "local function acquire(KEYS, ARGV)\n",
        text!("plain_acquire.lua"),
        "end\nlocal function release(KEYS, ARGV)\n",
        text!("plain_release.lua"),
        "end\nlocal VERBS = { a = { acquire, 2, 4 }, r = { release, 1, 1 } }\n",
        text!("batch.lua")
    );
    PLAIN_RENEW = text!("plain_renew.lua");
    PLAIN_INSPECT = text!("plain_inspect.lua");
    PLAIN_BREAK = text!("time.lua", "fence.lua", "plain_break.lua");
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

// Letters, keys and arguments as VERBS above has them. Capitals have all arguments, the others the least.
verbs! {
    TRY = ACQUIRE, 4, "a", BATCH;
    TRY_OR_QUEUE = ACQUIRE, 4, "A", BATCH;
    LET_GO = RELEASE, 4, "r", BATCH;
    LET_GO_AND_QUEUE = RELEASE, 4, "R", BATCH;
    PLAIN_TRY = PLAIN_ACQUIRE, 2, "a", PLAIN_BATCH;
    PLAIN_LET_GO = PLAIN_RELEASE, 1, "r", PLAIN_BATCH;
}
