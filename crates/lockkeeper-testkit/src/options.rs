//! The `--name value` pairs that the programs of this crate are started with.

use std::collections::HashMap;
use std::str::FromStr;

/// Why a program gave up.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// `--name value` pairs.
#[derive(Clone, Debug)]
pub struct Options(HashMap<String, String>);

impl Options {
    /// Reads them.
    ///
    /// # Errors
    /// When a name has no `--` or no value.
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
    ///
    /// # Errors
    /// When it is not.
    pub fn need(&self, name: &str) -> Result<&str, Failure> {
        self.get(name)
            .ok_or_else(|| format!("--{name} is missing").into())
    }

    /// A number.
    ///
    /// # Errors
    /// When it is none.
    pub fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T, Failure> {
        match self.get(name) {
            None => Ok(default),
            Some(text) => text
                .parse()
                .map_err(|_| format!("--{name} {text:?} is no number").into()),
        }
    }
}
