//! A request that a server of a quorum is sent: in short, and in full if it does not know the script.

use ::redis::{Cmd, ToRedisArgs};

use crate::store::redis::batch::parts;
use crate::store::redis::scripts::{Script, Text};

/// A script, and what it is called with.
#[derive(Clone)]
pub(in crate::store) struct Call {
    script: &'static Text,
    pub(super) cmd: Cmd,
}

impl Call {
    pub fn new(script: &'static Script, keys: &[&str]) -> Call {
        let script = &script.usual;
        let mut cmd = Cmd::with_capacity(24, 640);
        cmd.arg("EVALSHA")
            .arg(script.sha())
            .arg(keys.len())
            .arg(keys);
        Call { script, cmd }
    }

    /// Adds arguments.
    pub fn arg(mut self, arg: impl ToRedisArgs) -> Call {
        self.cmd.arg(arg);
        self
    }

    /// The same, in full from the start: one request does it, whatever the server knows.
    pub fn written_out(&self) -> Call {
        Call {
            script: self.script,
            cmd: self.in_full(),
        }
    }

    /// For a server that does not know the script.
    pub(super) fn in_full(&self) -> Cmd {
        let mut cmd = Cmd::with_capacity(24, self.script.text.len() + 640);
        cmd.arg("EVAL").arg(self.script.text);
        for part in parts(&self.cmd).skip(2) {
            cmd.arg(part);
        }
        cmd
    }
}
