//! An instance in a process of its own, so that it can be killed.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use lockkeeper::url::STORE_VARIABLE;

use super::lock::LockKind;
use super::serve::{Opened, ServeOptions};
use super::stock::STOCK_VARIABLE;
use crate::words;

/// A running `lockkeeper shop serve`. Dropping it kills it; it does not outlive this process either.
#[derive(Debug)]
pub struct Instance {
    child: Child,
    opened: Opened,
}

impl Instance {
    /// Starts an instance with the `lockkeeper` program of this path, and waits until it listens.
    ///
    /// # Errors
    /// When it does not start; it says why on standard error.
    pub fn start(program: &Path, options: &ServeOptions) -> Result<Instance> {
        let mut command = Command::new(program);
        command.args(["shop", "serve", "--json", "--leashed"]);
        command.args(["--listen", &options.listen.to_string()]);
        command.args(["--stock-size", &options.size.to_string()]);
        for (option, value) in [
            ("--lease", options.lease),
            ("--wait", options.wait),
            ("--work", options.work),
        ] {
            command.args([option, &format!("{}ms", value.as_millis())]);
        }
        for host in &options.hosts {
            command.args(["--host", host]);
        }
        if options.held_back {
            command.arg("--held-back");
        }
        // URLs go by the environment: there may be passwords in them.
        command.env(STOCK_VARIABLE, &options.stock);
        command.env_remove(STORE_VARIABLE);
        let (kind, store) = match &options.lock {
            LockKind::None => ("none", None),
            LockKind::Mutex => ("mutex", None),
            LockKind::Naive { name, redis, .. } => (name.as_str(), Some(redis)),
            LockKind::Ours(url) => ("store", Some(url)),
        };
        command.args(["--lock", kind]);
        command.envs(store.map(|url| (STORE_VARIABLE, url)));
        let mut child = command
            // A Ctrl-C means us: the instance ends with its standard input.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| words::shop_not_started(program))?;
        let stdout = child.stdout.take().context("a pipe")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let opened = serde_json::from_str(&line);
        if opened.is_err() {
            let _ = child.kill();
            let _ = child.wait();
        }
        Ok(Instance {
            child,
            opened: opened.context(words::SHOP_NOT_OPENED)?,
        })
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.opened.url
    }

    /// What it said when it opened.
    pub fn opened(&self) -> &Opened {
        &self.opened
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Tells an instance that was started with `held_back` that it may decide, from now on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn go_on(&mut self) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context(words::SHOP_IS_GONE)?;
        writeln!(stdin).context(words::SHOP_IS_GONE)
    }

    /// Kills it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Lets it end by itself, as its standard input ends, and answers whether it ended well.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub fn close(&mut self) -> Result<bool> {
        drop(self.child.stdin.take());
        Ok(self.child.wait()?.success())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.kill();
    }
}
