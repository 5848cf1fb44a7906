//! What a `redis:` URL says after its `?`.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use super::topology::Topology;
use super::url::{Dialect, Retention, Settings, refuse};
use crate::{Error, duration};

/// A password is a line; whatever is longer is another file.
const MOST_PASSWORD: u64 = 64 * 1024;
const MOST_REPLICAS: u32 = 100;
const TIMEOUTS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_secs(10);
/// The nodes of a quorum rely on the least: they refuse tokens that are half as old (`protocol::Terms::lag`).
const RETENTIONS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60 * 60)..=Duration::from_secs(3650 * 24 * 60 * 60);

impl Settings {
    /// Values are not repeated in errors: one may be a password in the wrong place.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), Error> {
        match key {
            "dialect" => {
                self.dialect = match value {
                    "redisson" => Dialect::Redisson,
                    "plain" => Dialect::Plain,
                    _ => {
                        return refuse(
                            "there are two dialects: dialect=redisson and dialect=plain",
                        );
                    }
                }
            }
            "db" => self.database = number(value)?,
            "prefix" => match value.len() {
                0..=128 if !value.chars().any(char::is_control) => self.prefix = value.to_owned(),
                _ => return refuse("a prefix has at most 128 bytes and no control characters"),
            },
            "connect_timeout" => self.connect_timeout = timeout(key, value)?,
            "response_timeout" => self.response_timeout = timeout(key, value)?,
            "token_retention" => self.token_retention = Some(retention(value)?),
            "password_file" => self.password = Some(password_file(value)?),
            "sentinel_user" => self.sentinel_user = Some(value.to_owned()),
            "sentinel_password_file" => self.sentinel_password = Some(password_file(value)?),
            "replicas" => match value.parse() {
                Ok(replicas) if replicas <= MOST_REPLICAS => self.replicas = replicas,
                _ => {
                    return refuse(format!(
                        "replicas is how many have to confirm a grant: 0 to {MOST_REPLICAS}"
                    ));
                }
            },
            "replicas_timeout" => self.replicas_timeout = timeout(key, value)?,
            "ca" => self.trust.ca = Some(path(key, value)?),
            "cert" => self.trust.identity.get_or_insert_default().0 = path(key, value)?,
            "key" => self.trust.identity.get_or_insert_default().1 = path(key, value)?,
            "insecure" => match value {
                "yes" => self.trust.insecure = true,
                _ => return refuse("insecure=yes trusts every server; leave it out otherwise"),
            },
            "password" | "pass" | "auth" => {
                return refuse(
                    "a password is no option, as it would be shown; write redis://USER:PASSWORD@HOST in \
                     LOCKKEEPER_STORE, or name a file with password_file=PATH",
                );
            }
            _ => {
                return refuse(format!(
                    "there is no option {key:.40?}; there are dialect, prefix, db, connect_timeout, \
                     response_timeout, token_retention, password_file, replicas, replicas_timeout, ca, cert, key, \
                     insecure, sentinel_user and sentinel_password_file"
                ));
            }
        }
        Ok(())
    }

    /// Whether the options go together.
    pub fn check(&self, given: &[&str]) -> Result<(), Error> {
        let given = |option: &str| given.contains(&option);
        if let Some(option) = ["ca", "cert", "key", "insecure"]
            .into_iter()
            .find(|option| given(option) && !self.tls)
        {
            return refuse(format!(
                "{option} is for TLS; write rediss: instead of redis:"
            ));
        }
        if let Some(option) = ["sentinel_user", "sentinel_password_file"]
            .into_iter()
            .find(|option| given(option) && !matches!(self.topology, Topology::Sentinel(..)))
        {
            return refuse(format!(
                "{option} is for Sentinels; write redis+sentinel://HOSTS/SERVICE"
            ));
        }
        if given("replicas_timeout") && self.replicas == 0 {
            return refuse(
                "replicas_timeout says how long replicas have; say how many with replicas=N",
            );
        }
        if given("cert") != given("key") {
            return refuse("cert=PATH and key=PATH belong together: a certificate and its key");
        }
        if given("ca") && self.trust.insecure {
            return refuse(
                "ca=PATH says whom to trust, insecure=yes to trust anyone; leave one out",
            );
        }
        Ok(())
    }
}

fn path(key: &str, value: &str) -> Result<PathBuf, Error> {
    match value.is_empty() {
        true => refuse(format!("{key} names a file: {key}=/PATH/TO/FILE.pem")),
        false => Ok(value.into()),
    }
}

pub(super) fn number(text: &str) -> Result<u32, Error> {
    match text.parse() {
        Ok(number) if number <= 1 << 20 => Ok(number),
        _ => refuse("after the host comes the number of a database, such as /0"),
    }
}

fn timeout(key: &str, value: &str) -> Result<Duration, Error> {
    match duration::parse(value) {
        Ok(timeout) if TIMEOUTS.contains(&timeout) => Ok(timeout),
        _ => refuse(format!(
            "{key} is a duration from 10ms to 10s, such as 500ms"
        )),
    }
}

fn retention(value: &str) -> Result<Retention, Error> {
    if value == "forever" {
        return Ok(Retention::Forever);
    }
    match duration::parse(value) {
        Ok(time) if RETENTIONS.contains(&time) => Ok(Retention::For(time)),
        Ok(_) => refuse(
            "token_retention is from 1h to 3650d, or forever: a clock that is set back by more than that may bring old \
             tokens again",
        ),
        Err(_) => refuse("token_retention is a duration such as 30d, or forever"),
    }
}

fn password_file(path: &str) -> Result<String, Error> {
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(MOST_PASSWORD).read_to_string(&mut text));
    if let Err(error) = read {
        return refuse(format!(
            "the password file {path:?} cannot be read: {error}"
        ));
    }
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => refuse(format!(
            "the first line of the password file {path:?} is empty"
        )),
    }
}
