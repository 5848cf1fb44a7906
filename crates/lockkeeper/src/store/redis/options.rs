//! What a `redis:` URL says after its `?`.

use std::time::Duration;

use super::topology::Topology;
use super::url::{Dialect, Retention, Settings};
use crate::store::common::{Credentials, Options, ServerUrl, Trust, refuse};
use crate::{Error, duration};

/// Long enough for a busy server, short enough to try again within any ordinary lease.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);
/// Replicas that follow confirm within milliseconds; a hold that is not confirmed has to be given back soon.
const REPLICAS_TIMEOUT: Duration = Duration::from_secs(1);
const MOST_REPLICAS: u32 = 100;
/// The nodes of a quorum rely on the least: they refuse tokens that are half as old (`protocol::Terms::lag`).
const RETENTIONS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(60 * 60)..=Duration::from_secs(3650 * 24 * 60 * 60);
const DIALECTS: &str = "there are two dialects: dialect=redisson and dialect=plain";
const A_PREFIX: &str = "a prefix has at most 128 bytes and no control characters";
const A_DATABASE: &str = "after the host comes the number of a database, such as /0";

impl Settings {
    /// What a URL and its options say of these servers. `database` is what the path says of it.
    pub fn of(
        server: &ServerUrl<'_>,
        topology: Topology,
        tls: bool,
        database: Option<u32>,
        options: &mut Options,
    ) -> Result<Settings, Error> {
        if database.is_some() {
            options.is_said_elsewhere("db")?;
        }
        let dialect = options.read("dialect", DIALECTS, |value| match value {
            "redisson" => Some(Dialect::Redisson),
            "plain" => Some(Dialect::Plain),
            _ => None,
        })?;
        let prefix = options.read("prefix", A_PREFIX, |value| {
            let fits = value.len() <= 128 && !value.chars().any(char::is_control);
            fits.then(|| value.to_owned())
        })?;
        let named = options.read("db", A_DATABASE, database_number)?;
        let connect_timeout = options.timeout("connect_timeout")?;
        let response_timeout = options.timeout("response_timeout")?;
        let retention = options.text("token_retention");
        let mut credentials = server.credentials().clone();
        if let Some(password) = options.password_file("password_file")? {
            credentials.password = Some(password);
        }
        let how_many =
            format!("replicas is how many have to confirm a grant: 0 to {MOST_REPLICAS}");
        let replicas = options.read("replicas", &how_many, |value| {
            let replicas = value.parse().ok();
            replicas.filter(|replicas| *replicas <= MOST_REPLICAS)
        })?;
        let replicas_timeout = options.timeout("replicas_timeout")?;
        let settings = Settings {
            kind: server.kind(),
            topology,
            tls,
            trust: Trust::read(options, tls, &server.kind())?,
            credentials,
            database: named.or(database).unwrap_or(0),
            dialect: dialect.unwrap_or(Dialect::Redisson),
            prefix: prefix.unwrap_or_default(),
            connect_timeout: connect_timeout.unwrap_or(DEFAULT_TIMEOUT),
            response_timeout: response_timeout.unwrap_or(DEFAULT_TIMEOUT),
            sentinel: Credentials {
                user: options.text("sentinel_user"),
                password: options.password_file("sentinel_password_file")?,
            },
            replicas: replicas.unwrap_or(0),
            replicas_timeout: replicas_timeout.unwrap_or(REPLICAS_TIMEOUT),
            token_retention: retention.as_deref().map(self::retention).transpose()?,
        };
        settings.check(options)?;
        Ok(settings)
    }

    /// Whether the options go together.
    fn check(&self, options: &Options) -> Result<(), Error> {
        if let Some(option) = options.first_of(&["sentinel_user", "sentinel_password_file"])
            && !matches!(self.topology, Topology::Sentinel(..))
        {
            return refuse(format!(
                "{option} is for Sentinels; write redis+sentinel://HOSTS/SERVICE"
            ));
        }
        if options.is_given("replicas_timeout") && self.replicas == 0 {
            return refuse(
                "replicas_timeout says how long replicas have; say how many with replicas=N",
            );
        }
        Ok(())
    }
}

/// The number of a database in a path.
pub(super) fn number(text: &str) -> Result<u32, Error> {
    match database_number(text) {
        Some(number) => Ok(number),
        None => refuse(A_DATABASE),
    }
}

fn database_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number <= 1 << 20)
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
