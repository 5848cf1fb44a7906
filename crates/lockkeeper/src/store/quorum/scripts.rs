//! The scripts that a node runs: constant text, called by their hash.

use crate::store::redis::scripts::{Script, Text};

macro_rules! scripts {
    ($($name:ident = $($file:literal),+;)*) => {$(
        pub(super) static $name: Script = Script {
            usual: Text::new(concat!($(include_str!(concat!("scripts/", $file))),+)),
            sharded: None,
        };
    )*};
}

scripts! {
    JOIN = "join.lua";
    ACQUIRE = "../../redis/scripts/clock.lua", "lag.lua", "acquire_fast.lua", "../../redis/scripts/time.lua", "token.lua", "least_token.lua",
        "acquire.lua", "record.lua", "acquire_beside.lua";
    RELEASE = "release.lua", "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "token.lua", "used.lua", "record.lua",
        "release_beside.lua";
    RENEW = "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "../../redis/scripts/stay.lua", "renew.lua";
    INSPECT = "record.lua", "inspect.lua";
    BREAK = "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "token.lua", "record.lua",
        "../../redis/scripts/broken.lua", "break.lua";
    PLAIN_ACQUIRE = "../../redis/scripts/clock.lua", "lag.lua", "plain_acquire_fast.lua", "../../redis/scripts/time.lua", "token.lua",
        "least_token.lua", "plain_acquire.lua";
    PLAIN_RELEASE = "plain_release.lua", "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "token.lua", "used.lua";
    PLAIN_RENEW = "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "../../redis/scripts/stay.lua",
        "../../redis/scripts/plain_prolong.lua", "plain_renew.lua";
    PLAIN_INSPECT = "plain_inspect.lua";
    PLAIN_BREAK = "../../redis/scripts/clock.lua", "../../redis/scripts/time.lua", "token.lua",
        "../../redis/scripts/broken.lua", "../../redis/scripts/is_lock.lua", "plain_break.lua";
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::quorum::protocol::Terms;

    #[test]
    fn the_scripts_refuse_tokens_that_are_as_old_as_the_terms_say() {
        let lag = Terms::new(3, Duration::from_secs(30)).lag.as_micros();
        for script in [&ACQUIRE, &PLAIN_ACQUIRE] {
            let text = script.usual.text;
            assert!(text.contains(&format!("local LAG = {lag}\n")), "{text}");
        }
    }
}
