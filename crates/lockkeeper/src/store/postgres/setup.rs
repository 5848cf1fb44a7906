//! What is asked and set when a connection begins: whether the server can be used, the tables, and whether it may have
//! forgotten grants.

use std::time::Duration;

use tokio::time::Instant;
use tokio_postgres::SimpleQueryRow;

use super::config::{Config, KIND, USUAL_LEASE};
use super::connection::Link;
use super::statements::{INSTALLING, VERSION, is_new, mark, quoted, tables};
use crate::store::sql::engine::length;
use crate::store::sql::hosts::Unusable;
use crate::store::sql::keep_alive;
use crate::{Error, SETUP_TARGET};

/// How long the beginning may take as a whole, once the server has let us in.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long tables that were there may be away before they are made anew.
const COME_BACK_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// How long a transaction waits for a row that a user's transaction has locked.
const ROW_WAIT: &str = "100ms";
/// By how much a time may be later than it can be, in microseconds.
pub(super) const SLACK: u64 = 1_000_000;

/// What a connection has found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Facts {
    /// Another process serves us than the one that let us in.
    pub pooled: bool,
    /// The session has marked the schema.
    pub has_marked: bool,
    /// The longest lease that any client may ask for.
    pub max_lease: Duration,
    /// From when on the server may grant.
    pub ready_at: u64,
    /// For how long a server sits out, in microseconds.
    pub sits_out: u64,
    /// The server's clock.
    pub now: u64,
}

fn text(row: &SimpleQueryRow, at: usize) -> &str {
    row.try_get(at).ok().flatten().unwrap_or_default()
}

/// Makes a new connection ready. `told` is the server process that let us in. `again`: the store is open already.
pub(super) async fn prepare(
    link: &mut Link,
    config: &Config,
    told: u32,
    again: bool,
) -> Result<(), Unusable> {
    let ask = async |link: &Link, text: &str| link.rows(text, PATIENCE, &config.schema).await;
    let one = |rows: Vec<SimpleQueryRow>| {
        let rows = rows.into_iter().next();
        rows.ok_or_else(|| KIND.unavailable("the server left a question without an answer"))
    };

    let version = one(ask(link, "SELECT version()").await?)?;
    let version = text(&version, 0);
    if let Some(other) = ["CockroachDB", "YB-"]
        .iter()
        .find(|other| version.contains(**other))
    {
        return Err(KIND.refused(format!(
            "this is {other}, which has no NOTIFY as PostgreSQL has it; name a PostgreSQL server"
        )).into());
    }
    let facts = one(ask(link, FACTS).await?)?;
    let number: u32 = text(&facts, 0).parse().unwrap_or(0);
    if number < 120_000 {
        return Err(KIND
            .refused("its version is below 12; use a newer server")
            .into());
    }
    if text(&facts, 1) == "t" {
        let reason =
            "this server is a replica; name the primary, or all of them with commas in between";
        return Err(Unusable::Standby(reason.into()));
    }
    if text(&facts, 2) != "UTF8" {
        return Err(KIND.refused(
            "the database is not in UTF-8, so that it cannot keep every name; use one with ENCODING 'UTF8'",
        ).into());
    }
    if text(&facts, 3) == "on" {
        let reason = "default_transaction_read_only is on for this user or database; set it to off";
        return Err(Unusable::Standby(reason.into()));
    }
    let (synchronous, fsync) = (text(&facts, 4), text(&facts, 5));
    let process: u32 = text(&facts, 6).parse().unwrap_or(0);
    link.dialect.system = text(&facts, 7).to_owned();
    link.facts.pooled = told != process;
    warn(config, link.facts.pooled, synchronous, fsync);

    let response = config.response_timeout.as_millis();
    match link.facts.pooled {
        true => {
            link.dialect.prepared = false;
            link.limits = format!(
                "SET LOCAL lock_timeout TO '{ROW_WAIT}';\nSET LOCAL statement_timeout TO {response};\n"
            );
        }
        false => {
            // A keeper that idles keeps its session, whatever the server does to others by default. One whose machine is gone does not.
            let idle = match number >= 140_000 {
                true => "SET idle_session_timeout TO 0;",
                false => "",
            };
            let transaction = match number >= 170_000 {
                true => "SET transaction_timeout TO 0;",
                false => "",
            };
            // Also where it is not off now: a server that is told so later does not take it from a session that has said what it wants.
            let sync = if synchronous == "off" {
                "on"
            } else {
                synchronous
            };
            let sync = format!("SET synchronous_commit TO {};", quoted(sync));
            let keep_alive = format!(
                "SET tcp_keepalives_idle TO {}; SET tcp_keepalives_interval TO {}; SET tcp_keepalives_count TO {}; \
                 SET tcp_user_timeout TO {};",
                keep_alive::IDLE.as_secs(),
                keep_alive::INTERVAL.as_secs(),
                keep_alive::COUNT,
                keep_alive::GONE.as_millis()
            );
            let settings = format!(
                "SET default_transaction_isolation TO 'read committed'; SET statement_timeout TO 0; \
                 SET lock_timeout TO 0; SET idle_in_transaction_session_timeout TO 10000; \
                 SET plan_cache_mode TO force_generic_plan; SET jit TO off; SET client_min_messages TO warning; {idle} {transaction} {keep_alive} {sync}"
            );
            // Of an open store before anything else: a new client that finds no schema does not take it for one that nobody uses.
            let mark = if again {
                mark(&config.schema)
            } else {
                String::new()
            };
            ask(link, &format!("{settings};{mark}")).await?;
            link.facts.has_marked = again;
        }
    }
    install(link, config, again).await?;
    let meta = link
        .dialect
        .fill("SELECT version, max_lease, {t} FROM {s}.meta");
    let meta = one(ask(link, &meta).await?)?;
    let version: i64 = text(&meta, 0).parse().unwrap_or(0);
    if version != VERSION {
        return Err(KIND.refused(format!(
            "the tables in schema {:?} have version {version}, and this release knows version {VERSION}; use the release that \
             made them, or another schema with schema=NAME",
            config.schema
        )).into());
    }
    let stored = Duration::from_micros(text(&meta, 1).parse().unwrap_or(0));
    link.facts.now = text(&meta, 2).parse().unwrap_or(0);
    let wanted = config.max_lease.unwrap_or(stored);
    let longest = wanted.max(stored);
    let sits_out = length(longest + longest / 100 + Duration::from_secs(1));
    if wanted > stored {
        // A server that sits out does so for the leases that it may have granted and forgotten, this one among them.
        let raise = link.dialect.fill(&format!(
            "UPDATE {{s}}.meta SET max_lease = greatest(max_lease, {}); \
             UPDATE {{s}}.alive a SET ready_at = {{t}} + {sits_out}, born = txid_current() & 4294967295 \
             WHERE {{own}} AND a.ready_at > {{t}} AND a.ready_at < {{t}} + {sits_out}",
            length(wanted)
        ));
        ask(link, &raise).await?;
    }
    link.facts.max_lease = wanted;
    link.facts.sits_out = sits_out as u64;
    link.facts.ready_at = awaken(link, config).await?;
    if link.dialect.prepared {
        ask(link, &link.dialect.prepare()).await?;
        // Of a new store not before: two that make the tables at once would take each other for users of tables that are gone.
        let limits = format!(
            "{}; SET lock_timeout TO '{ROW_WAIT}'; SET statement_timeout TO {response}",
            mark(&config.schema)
        );
        ask(link, &limits).await?;
    }
    Ok(())
}

const FACTS: &str = "SELECT current_setting('server_version_num'), pg_is_in_recovery(), current_setting('server_encoding'), \
     current_setting('default_transaction_read_only'), current_setting('synchronous_commit'), current_setting('fsync'), \
     pg_backend_pid(), (SELECT system_identifier || '/' || oid FROM pg_control_system(), pg_database \
     WHERE datname = current_database())";

fn warn(config: &Config, pooled: bool, synchronous: &str, fsync: &str) {
    let server = config.place();
    if pooled {
        tracing::warn!(
            target: SETUP_TARGET,
            %server,
            "there is a connection pooler in between, which cannot pass on notifications: waiters poll. Connect to the server itself"
        );
    }
    if fsync == "off" {
        tracing::warn!(
            target: SETUP_TARGET,
            %server,
            "fsync is off: a crash of the server's machine may lose or damage everything, locks included"
        );
    }
    if synchronous == "off" {
        tracing::warn!(
            target: SETUP_TARGET,
            %server,
            "synchronous_commit is off by default; it is set to on for grants and renewals"
        );
    }
}

/// The tables without which there are no locks. A latch is refused where its own are missing: made anew, they would have every latch open.
const NEEDED: [&str; 5] = ["meta", "lock", "hold", "waiter", "alive"];

/// Makes the tables that are missing. Of several clients one does.
///
/// Somebody may hold what tables said that are gone. So the server sits out, unless [nobody can](is_new): `alive` has no row then, or one
/// that names other tables. Nothing is granted in between, since the tables are made in one transaction.
async fn install(link: &Link, config: &Config, again: bool) -> Result<(), Error> {
    let schema = &config.schema;
    let ask = async |text: &str| link.rows(text, PATIENCE, schema).await;
    let named = quoted(schema);
    // Not by `to_regclass`, which may know only what was there when the transaction began.
    let tables_there = format!(
        "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {named} AND c.relkind = 'r'"
    );
    let missing = async || -> Result<Vec<&str>, Error> {
        let rows = ask(&tables_there).await?;
        let is_there = |table: &&str| rows.iter().any(|row| text(row, 0) == *table);
        Ok(NEEDED.into_iter().filter(|one| !is_there(one)).collect())
    };
    let lost = |missing: &[&str]| again || missing.len() < NEEDED.len();
    // They were there. A dump that is loaded makes each of its tables, and fails if there is one in its way.
    let end = Instant::now() + COME_BACK_WITHIN;
    let mut away = missing().await?;
    while !away.is_empty() && lost(&away) && Instant::now() < end {
        tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        away = missing().await?;
    }
    if away.is_empty() {
        return Ok(());
    }
    let is_true = |rows: Vec<SimpleQueryRow>| rows.first().is_some_and(|row| text(row, 0) == "t");
    let making = async {
        ask(&format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout TO '15s'; {INSTALLING}"
        ))
        .await?;
        away = missing().await?;
        if away.is_empty() {
            return Ok(());
        }
        let is_new = is_true(ask(&format!("SELECT {}", is_new(schema))).await?);
        let there = format!("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = {named})");
        if !is_true(ask(&there).await?) {
            ask(&format!("CREATE SCHEMA {}", link.dialect.schema)).await?;
        }
        let max_lease = config.max_lease.unwrap_or(USUAL_LEASE).max(USUAL_LEASE);
        let new = if is_new && !again { "true" } else { "false" };
        ask(&tables(schema, length(max_lease), new)).await?;
        ask("COMMIT").await.map(drop)
    };
    let made = making.await;
    if made.is_err() {
        let _ = ask("ROLLBACK").await;
    } else {
        let _ = ask("COMMIT").await;
    }
    match made {
        Err(Error::Refused { reason, .. }) if lost(&away) => Err(KIND.refused(format!(
            "schema {schema:?} has no table {}: {reason}",
            away.join(", ")
        ))),
        made => made,
    }
}

/// Finds out whether the server may have forgotten grants, and from when on it may grant. The table `alive` is empty after a crash and
/// on a promoted standby; a copy names another system, database or tables, or was written by another transaction than it says.
///
/// A time that is later than any can be is the work of a clock that was set back. The longest lease is read here, and not before: another
/// client may just have raised it, and the time with it.
///
/// A client that is told never to sit out writes the same, for all others, and goes on at once.
pub(super) async fn awaken(link: &Link, config: &Config) -> Result<u64, Error> {
    let latest = "{t} + max_lease + max_lease / 100 + 1000000";
    // Where all is well no row is locked: a transaction that keeps that of `meta` keeps nobody out. A user who may only read is refused.
    let is_well = link.dialect.fill(&format!(
        "UPDATE {{s}}.lock SET version = version WHERE false; SELECT {{ready_at}} FROM {{alive}} WHERE {{own}} AND a.ready_at <= (SELECT {latest} + {SLACK} FROM {{s}}.meta)"
    ));
    let rows = link.rows(&is_well, PATIENCE, &config.schema).await?;
    if let Some(row) = rows.first() {
        return Ok(text(row, 0).parse().unwrap_or(u64::MAX));
    }
    let text_of = link.dialect.fill(&format!(
        "INSERT INTO {{s}}.alive AS a SELECT 1, '{{system}}/' || {{tables}}, {latest}, \
         txid_current() & 4294967295 \
         FROM {{s}}.meta FOR SHARE ON CONFLICT (one) DO UPDATE SET system = EXCLUDED.system, ready_at = EXCLUDED.ready_at, born = EXCLUDED.born \
         WHERE a.system <> EXCLUDED.system OR a.born <> a.xmin::text::bigint \
           OR a.ready_at > EXCLUDED.ready_at + {SLACK}; \
         SELECT {{ready_at}} FROM {{s}}.alive a"
    ));
    let rows = link.rows(&text_of, PATIENCE, &config.schema).await?;
    let ready_at = rows.first().map(|row| text(row, 0).parse().unwrap_or(0));
    Ok(ready_at.unwrap_or(u64::MAX))
}
