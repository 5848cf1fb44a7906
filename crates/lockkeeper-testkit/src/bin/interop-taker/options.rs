//! The `--name value` pairs that the program is started with.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use lockkeeper_testkit::taking::Failure;

/// `--name value` pairs.
#[derive(Clone, Debug)]
pub struct Options(HashMap<String, String>);

impl Options {
    /// Reads them.
    pub fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options, Failure> {
        let mut options = HashMap::new();
        while let Some(name) = arguments.next() {
            let name = name.strip_prefix("--").ok_or("options start with --")?;
            let value = arguments.next().ok_or("an option has no value")?;
            options.insert(name.to_owned(), value);
        }
        Ok(Options(options))
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// One that has to be there.
    pub fn need(&self, name: &str) -> Result<&str, Failure> {
        self.get(name)
            .ok_or_else(|| format!("--{name} is missing").into())
    }

    /// A number.
    pub fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T, Failure> {
        match self.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("--{name} {text:?} is no number").into()),
        }
    }

    /// A duration.
    pub fn duration(&self, name: &str, default: Duration) -> Result<Duration, Failure> {
        match self.get(name) {
            Some(text) => Ok(lockkeeper::duration::parse(text)?),
            None => Ok(default),
        }
    }
}
