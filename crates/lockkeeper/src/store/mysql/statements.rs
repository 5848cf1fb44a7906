//! The steps of a transaction as statements, and their answers read back.
//!
//! Assignments of an UPDATE see what those before them have assigned: the session's `sql_mode` makes sure of that.

use std::time::{Duration, UNIX_EPOCH};

use super::facts::Terms;
use super::reply::{Reply as Said, Row};
use super::rows;
use super::text::{self, NOW, in_time};
use crate::store::record::LatchChange;
use crate::store::sql::engine::{LOOK, Looked, Op, Reply, Save, Wake, micros, mode_columns};
use crate::store::{Claim, ClaimId, Grant, Mode, QUEUE_TTL};
use crate::{Name, Token};

const SECOND: i64 = 1_000_000;
/// What has not been used for so long may be forgotten.
const UNUSED: i64 = 3_600 * SECOND;
/// Keepers not seen for so long are forgotten.
const DAY: i64 = 24 * 3_600 * SECOND;

/// The clock where tables are made: that of our sessions is not there in one of an administrator.
const CLOCK: &str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))";

/// How many statements an append has.
const APPEND: usize = 7;
/// A condition behind [`Tables::stay`], which the server knows before it looks at any row.
const NOT_STAYED: &str = " AND @s=0";

/// What the tables are called after their prefix.
pub(super) const TABLES: [&str; 7] = [
    "lock", "hold", "waiter", "keeper", "latch", "arrival", "meta",
];

/// What a look is to test besides the server. To ask when a table was made takes longer than the rest of the look.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Tested {
    Server,
    /// Enough for what takes a lock by `lock` alone.
    Lock,
    All,
}

impl Tested {
    /// What has to be true when this was done.
    pub fn of(op: &Op) -> Tested {
        match op {
            Op::Take { .. } => Tested::Lock,
            Op::Append { .. } => Tested::All,
            Op::Save(save) if save.grants => Tested::All,
            _ => Tested::Server,
        }
    }
}

/// The names of the tables, and what lets a server grant.
#[derive(Clone, Debug)]
pub(super) struct Tables {
    prefix: String,
    pub terms: Terms,
}

impl Tables {
    pub fn new(prefix: &str) -> Tables {
        Tables {
            prefix: prefix.to_owned(),
            terms: Terms::default(),
        }
    }

    pub fn table(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The statements that make the tables, as far as they are not there. `lost`: there were such tables, and so there may be holders of
    /// whom new ones know nothing. The mark that has the server sit out then is written before there is a table that can grant.
    pub fn schema(&self, lost: bool) -> Vec<String> {
        let mut statements = self.making("FALSE");
        if lost {
            let meta = self.table("meta");
            let mark = [
                format!("INSERT IGNORE INTO {meta} SELECT 1,1,{CLOCK}+{SECOND},0,'',0,0,0,''"),
                // A server sits out whose tables say nothing of when they were made.
                format!("UPDATE {meta} SET made=''"),
            ];
            // Behind the first, which makes the table.
            statements.splice(1..1, mark);
        }
        statements
    }

    /// The same for an administrator, who does not know whether there were such tables. Where one of them is left, there were.
    pub fn script(&self) -> Vec<String> {
        let tables = TABLES.map(|table| format!("'{}'", self.table(table)));
        let look = format!(
            "SET @lk_lost = (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema=DATABASE() AND table_name IN ({})) > 0",
            tables.join(", ")
        );
        let mut statements = self.making("COALESCE(@lk_lost, TRUE)");
        statements.insert(0, look);
        statements
    }

    /// `lost` says, as SQL, whether there were such tables.
    fn making(&self, lost: &str) -> Vec<String> {
        let made = ["lock", "hold"].map(|table| text::made(&self.table(table)));
        let mut text = include_str!("schema.sql")
            .replace("{made}", &format!("CONCAT_WS(':', {})", made.join(", ")))
            .replace("{now}", CLOCK)
            .replace("{lost}", lost);
        for table in TABLES {
            text = text.replace(&format!("{{{table}}}"), &self.table(table));
        }
        let lines = text.lines().filter(|line| !line.starts_with("--"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let statements = text.split(';').map(|one| one.trim().to_owned());
        statements.filter(|one| !one.is_empty()).collect()
    }

    /// Fails if a table is missing without which there are no locks. A latch is refused where its own are missing: made anew, they would
    /// have every latch open.
    pub fn are_there(&self) -> String {
        let [lock, hold, waiter] = ["lock", "hold", "waiter"].map(|one| self.table(one));
        format!("NOT EXISTS(SELECT 1 FROM {lock} l,{hold} h,{waiter} w WHERE FALSE)")
    }

    /// Whether somebody holds a lock. It looks at all of them.
    pub fn is_used(&self) -> String {
        let [lock, hold] = ["lock", "hold"].map(|table| {
            format!(
                "EXISTS(SELECT 1 FROM {} WHERE claim IS NOT NULL AND expires>{NOW} AND expires<={NOW}+lease+{SECOND})",
                self.table(table)
            )
        });
        format!("SELECT {lock} OR {hold}")
    }

    /// Reads the time, the number of breaks, when the server may grant, and whether the session still knows it and these tables right.
    pub fn look(&self, at: Tested) -> String {
        format!(
            "SELECT {NOW},breaks,{},{} FROM {}",
            self.terms.ready_at,
            self.fits(at),
            self.table("meta")
        )
    }

    /// For a SELECT from `meta`: whether the session still knows the server and these tables right.
    pub fn fits(&self, at: Tested) -> String {
        let Terms {
            fits,
            same_lock,
            same_hold,
            ..
        } = &self.terms;
        match at {
            Tested::Server => fits.clone(),
            Tested::Lock => format!("{fits} AND {same_lock}"),
            Tested::All => format!("{fits} AND {same_lock} AND {same_hold}"),
        }
    }

    /// Locks the row of a step that changes something, or fails at once if somebody keeps it.
    pub fn lock_now(&self, op: &Op) -> Option<String> {
        let table = match op {
            Op::Take { .. }
            | Op::Append { .. }
            | Op::Free { .. }
            | Op::Prolong { .. }
            | Op::Save(_) => "lock",
            Op::SaveLatch { .. } => "latch",
            _ => return None,
        };
        Some(self.lock_row_now(table, op.name()))
    }

    fn lock_row_now(&self, table: &str, name: &str) -> String {
        format!(
            "SELECT 1 FROM {} WHERE name={} FOR UPDATE NOWAIT",
            self.table(table),
            text::hex(name.as_bytes())
        )
    }

    /// Takes an exclusive claim out of the queue if it stands behind the head. No save that lets it in can be on its way: for that, a
    /// save that removes the head has to come first, and this transaction has the row of the name until the claim is gone. Readers
    /// and permits are let in together with the head.
    pub fn leave(&self, name: &Name, claim: ClaimId) -> [String; 5] {
        let (waiter, hex) = (self.table("waiter"), text::name(name));
        let alone =
            [Mode::Exclusive, Mode::Fair, Mode::Write].map(|mode| mode_columns(mode).0.to_string());
        [
            "BEGIN".into(),
            self.lock_row_now("lock", name),
            // No SET with a SELECT in it, which would wait for the rows of others.
            format!("SELECT MIN(seq) INTO @h FROM {waiter} WHERE name={hex} AND until>{NOW}"),
            format!(
                "DELETE FROM {waiter} WHERE name={hex} AND claim={} AND seq>@h AND mode IN ({})",
                text::claim(claim),
                alone.join(",")
            ),
            "COMMIT".into(),
        ]
    }

    /// What a step is in SQL. `waits` says which claims are in the queue, as far as this keeper knows.
    pub fn statements(&self, op: &Op, waits: impl Fn(ClaimId) -> bool) -> Vec<String> {
        match op {
            Op::Take { claim, not_after } => self.take(claim, *not_after),
            Op::Append { claim, not_after } if waits(claim.id) => {
                let mut statements = self.stay(claim, *not_after).to_vec();
                statements.extend(self.confirm(claim, *not_after));
                statements.extend(self.append(claim, *not_after, NOT_STAYED));
                statements
            }
            Op::Append { claim, not_after } => self.append(claim, *not_after, "").into(),
            Op::Free { name, claim } => vec![format!(
                "UPDATE {} SET claim=NULL,version=version+1 WHERE name={} AND claim={} AND expires>{NOW} AND waited=0 AND shared=0",
                self.table("lock"),
                text::name(name),
                text::claim(*claim)
            )],
            Op::Prolong {
                name,
                claim,
                lease,
                not_after,
            } => self.prolong(name, *claim, *lease, *not_after, "").into(),
            Op::Load { name, limit } => vec![self.load(name, *limit)],
            Op::Save(save) => self.save(save),
            Op::Count { name } => vec![format!(
                "SELECT COUNT(*) FROM {} WHERE name={} AND until>{NOW}",
                self.table("waiter"),
                text::name(name)
            )],
            Op::Names {
                prefix,
                after,
                limit,
            } => vec![self.names(prefix, after.as_deref(), *limit)],
            Op::Processes(keepers) => {
                let ids: Vec<String> = keepers.iter().map(|one| text::keeper(*one)).collect();
                vec![format!(
                    "SELECT id,host,pid,program FROM {} WHERE id IN ({})",
                    self.table("keeper"),
                    ids.join(",")
                )]
            }
            Op::Enlist(keeper, process) => {
                let table = self.table("keeper");
                let cut = |text: &str| text::hex(&text.as_bytes()[..text.len().min(255)]);
                vec![
                    // A DELETE that looks for rows waits for those of others, who say the same just now.
                    format!("SELECT EXISTS(SELECT 1 FROM {table} WHERE seen<{NOW}-{DAY}) INTO @o"),
                    format!("DELETE FROM {table} WHERE @o AND seen<{NOW}-{DAY} LIMIT 100"),
                    format!(
                        "REPLACE INTO {table} VALUES ({},{},{},{},CURRENT_USER(),{NOW})",
                        text::keeper(*keeper),
                        cut(&process.host),
                        process.pid,
                        cut(&process.program)
                    ),
                ]
            }
            Op::Look { after } => vec![self.look_for_unused(after)],
            Op::Forget(names) => self.forget(names),
            Op::LoadLatch { name, id } => vec![format!(
                "SELECT version,remaining,EXISTS(SELECT 1 FROM {} WHERE name={name} AND id={}) FROM {} WHERE name={name}",
                self.table("arrival"),
                text::claim(*id),
                self.table("latch"),
                name = text::name(name),
            )],
            Op::SaveLatch {
                name,
                id,
                seen,
                version,
                change,
                not_after,
            } => self.save_latch(name, *id, (*seen, *version), *change, *not_after),
        }
    }

    fn take(&self, claim: &Claim, not_after: u64) -> Vec<String> {
        let (lock, name) = (self.table("lock"), text::name(&claim.name));
        let (mode, ..) = mode_columns(claim.mode);
        // The whole run has to fit below the furthest that tokens may lead the clock; else the rules cut it.
        let take = format!(
            "UPDATE {lock} SET since={NOW},first=LAST_INSERT_ID(GREATEST(token+1,since)),token=first+{reserve}-1,tokens={reserve},\
             claim={id},mode={mode},lease={lease},expires=since+{lease},label={label},version=version+1 \
             WHERE name={name} AND waited=0 AND shared=0 AND (claim IS NULL OR expires<={NOW}) AND token+{reserve}<{NOW}+{SECOND} \
             AND {reserve}<={SECOND} AND {may}{in_time}",
            reserve = claim.reserve.max(1),
            id = text::claim(claim.id),
            lease = text::lease(claim.lease),
            label = text::label(claim.label.as_ref()),
            may = self.terms.may_grant,
            in_time = in_time(not_after),
        );
        match claim.enqueue {
            // It is appended next if it is busy, which tells for how long.
            true => vec![take],
            false => vec![take, self.held(claim)],
        }
    }

    /// How long the exclusive hold of another claim lasts, if that is all there is.
    fn held(&self, claim: &Claim) -> String {
        format!(
            "SELECT expires-{NOW} FROM {} WHERE name={} AND claim<>{} AND shared=0 AND expires>{NOW} AND expires<={NOW}+lease+{SECOND}",
            self.table("lock"),
            text::name(&claim.name),
            text::claim(claim.id)
        )
    }

    /// The sign of life of a claim that stands in the queue while another's hold lives. It locks no other row than its own: those who wait
    /// keep the lock from nobody, however long a commit takes.
    fn stay(&self, claim: &Claim, not_after: u64) -> [String; 2] {
        let (name, id) = (text::name(&claim.name), text::claim(claim.id));
        [
            format!(
                "UPDATE {} SET until={NOW}+{} WHERE name={name} AND claim={id} AND until>{NOW} AND EXISTS(SELECT 1 FROM {} WHERE \
                 waited=1 AND {})",
                self.table("waiter"),
                text::lease(QUEUE_TTL),
                self.table("lock"),
                held_by_another(claim, not_after)
            ),
            "SET @s=ROW_COUNT()".into(),
        ]
    }

    fn append(&self, claim: &Claim, not_after: u64, only_if: &str) -> [String; APPEND] {
        let (lock, waiter) = (self.table("lock"), self.table("waiter"));
        let (name, id) = (text::name(&claim.name), text::claim(claim.id));
        let ttl = text::lease(QUEUE_TTL);
        [
            format!(
                "UPDATE {lock} SET tail=LAST_INSERT_ID(tail+1),waited=1 WHERE {}{only_if}",
                held_by_another(claim, not_after)
            ),
            // The claim's place, if all is as it should be.
            format!("SET @n=IF(ROW_COUNT()=1,LAST_INSERT_ID(),0),@t={NOW}"),
            format!(
                "UPDATE {waiter} SET until=@t+{ttl} WHERE @n>0 AND name={name} AND claim={id} AND until>@t"
            ),
            "SET @n=IF(ROW_COUNT()=1,0,@n)".into(),
            format!("DELETE FROM {waiter} WHERE @n>0 AND name={name} AND claim={id}"),
            format!(
                "INSERT INTO {waiter} (name,seq,claim,mode,permits,taken,lease,reserve,since,until,label) SELECT {name},@n,{} \
                 FROM DUAL WHERE @n>0",
                text::joining(claim, QUEUE_TTL)
            ),
            // A reader that stands beside the hold may be the first to go.
            format!(
                "SELECT LEAST(expires,COALESCE((SELECT MIN(expires) FROM {} WHERE name={name} AND expires>{NOW}),expires))-{NOW} FROM {lock} WHERE name={name}",
                self.table("hold")
            ),
        ]
    }

    /// Prolongs what a claim was given while it waited, and selects its tokens.
    fn confirm(&self, claim: &Claim, not_after: u64) -> Vec<String> {
        let [alone, shared, hold] =
            self.prolong(&claim.name, claim.id, claim.lease, not_after, NOT_STAYED);
        let (table, mut statements) = if claim.mode.is_exclusive() {
            ("lock", vec![alone])
        } else {
            ("hold", vec![shared, hold])
        };
        statements.push(format!(
            "SELECT first,tokens FROM {} WHERE name={} AND claim={}",
            self.table(table),
            text::name(&claim.name),
            text::claim(claim.id)
        ));
        statements
    }

    /// Prolongs the hold in `lock`, or that in `hold` by two statements.
    fn prolong(
        &self,
        name: &Name,
        claim: ClaimId,
        lease: Duration,
        not_after: u64,
        only_if: &str,
    ) -> [String; 3] {
        let (lock, hold) = (self.table("lock"), self.table("hold"));
        let (name, id, lease) = (text::name(name), text::claim(claim), text::lease(lease));
        let in_time = in_time(not_after);
        // The lease first: it asks for the end as it was. After the clock was set back a longer one may not move the end, and the end
        // is then cut to the lease.
        let longer = format!(
            "lease=IF({NOW}+{lease}>expires,{lease},GREATEST(lease,{lease})),expires=GREATEST(expires,{NOW}+{lease})"
        );
        [
            format!(
                "UPDATE {lock} SET {longer},version=version+1 WHERE name={name} AND claim={id} AND expires>{NOW}{in_time}{only_if}"
            ),
            format!(
                "UPDATE {lock} SET version=version+1 WHERE name={name} AND shared>0 AND EXISTS(SELECT 1 FROM {hold} WHERE \
                 name={name} AND claim={id} AND expires>{NOW}){in_time}{only_if}"
            ),
            format!(
                "UPDATE {hold} SET {longer} WHERE ROW_COUNT()=1 AND name={name} AND claim={id} AND expires>{NOW}"
            ),
        ]
    }

    /// One statement, and so one view of all tables.
    fn load(&self, name: &Name, limit: usize) -> String {
        let name = text::name(name);
        format!(
            "SELECT 0,{NOW},floor,{may},NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL FROM {meta} \
             UNION ALL SELECT 1,version,tail,waited,token,claim,mode,first,tokens,lease,expires,since,label,reason,broken \
             FROM {lock} WHERE name={name} \
             UNION ALL SELECT 2,permits,taken,0,0,claim,mode,first,tokens,lease,expires,since,label,NULL,NULL \
             FROM {hold} WHERE name={name} \
             UNION ALL (SELECT 3,permits,taken,seq,reserve,claim,mode,0,0,lease,until,since,label,NULL,NULL \
             FROM {waiter} WHERE name={name} ORDER BY seq LIMIT {limit})",
            may = self.terms.may_grant,
            meta = self.table("meta"),
            lock = self.table("lock"),
            hold = self.table("hold"),
            waiter = self.table("waiter"),
        )
    }

    fn save(&self, save: &Save) -> Vec<String> {
        let (lock, hold, waiter) = (self.table("lock"), self.table("hold"), self.table("waiter"));
        let name = text::name(&save.name);
        let version = save.version;
        let mut statements = vec![self.save_lock(save)];
        // No two saves have one version, so this asks whether the first statement did its work.
        let saved = format!("EXISTS(SELECT 1 FROM {lock} WHERE name={name} AND version={version})");
        let mut push = |statement: String| statements.push(statement);
        if !save.ended.is_empty() {
            let ended = text::claims(&save.ended);
            push(format!(
                "DELETE FROM {hold} WHERE name={name} AND claim IN ({ended}) AND {saved}"
            ));
        }
        for one in &save.holds {
            push(format!(
                "REPLACE INTO {hold} (name,claim,mode,permits,taken,first,tokens,lease,expires,since,label) \
                 SELECT {name},{} FROM {lock} WHERE name={name} AND version={version}",
                text::hold(one)
            ));
        }
        if let Some(now) = save.lapse {
            let now = micros(now);
            push(format!(
                "DELETE FROM {waiter} WHERE name={name} AND until<={now} AND {saved}"
            ));
        }
        if !save.leave.is_empty() {
            let leave = text::claims(&save.leave);
            push(format!(
                "DELETE FROM {waiter} WHERE name={name} AND claim IN ({leave}) AND {saved}"
            ));
        }
        for (claim, until) in &save.keep {
            let until = micros(*until);
            push(format!(
                "UPDATE {waiter} SET until={until} WHERE name={name} AND claim={} AND until>{NOW} AND {saved}",
                text::claim(*claim)
            ));
        }
        if let Some(entry) = &save.enqueue {
            let id = text::claim(entry.claim);
            let until = micros(entry.until);
            push(format!(
                "UPDATE {waiter} SET until={until} WHERE name={name} AND claim={id} AND until>{NOW} AND {saved}"
            ));
            push("SET @k=ROW_COUNT()".into());
            push(format!(
                "DELETE FROM {waiter} WHERE @k=0 AND name={name} AND claim={id} AND {saved}"
            ));
            push(format!(
                "INSERT INTO {waiter} (name,seq,claim,mode,permits,taken,lease,reserve,since,until,label) \
                 SELECT {name},tail,{} FROM {lock} WHERE @k=0 AND name={name} AND version={version}",
                text::queued(entry)
            ));
        }
        if save.wake.iter().any(|wake| matches!(wake, Wake::Broken(_))) {
            push(format!(
                "UPDATE {} SET breaks=breaks+1 WHERE {saved}",
                self.table("meta")
            ));
        }
        statements
    }

    /// The first statement of a save: it decides.
    fn save_lock(&self, save: &Save) -> String {
        let (lock, name) = (self.table("lock"), text::name(&save.name));
        let (waited, joins) = (u8::from(save.waited), u8::from(save.enqueue.is_some()));
        let mut columns = vec![
            ("version", save.version.to_string()),
            ("shared", save.shared.to_string()),
            ("token", save.token.to_string()),
        ];
        columns.extend(holder_columns(save));
        let mut only_if = in_time(save.not_after);
        if save.grants {
            only_if = format!(" AND {}{only_if}", self.terms.may_grant);
        }
        let Some((seen, tail)) = save.seen else {
            columns.push(("waited", (waited | joins).to_string()));
            columns.push(("tail", joins.to_string()));
            if save.grants {
                // Others may have forgotten a later hold of the name since the load.
                let meta = self.table("meta");
                let token = save.token;
                only_if += &format!(" AND EXISTS(SELECT 1 FROM {meta} WHERE floor<{token})");
            }
            let (names, values): (Vec<&str>, Vec<String>) = columns.into_iter().unzip();
            return format!(
                "INSERT IGNORE INTO {lock} (name,{}) SELECT {name},{} FROM DUAL WHERE TRUE{only_if}",
                names.join(","),
                values.join(",")
            );
        };
        if save.same_tail {
            only_if = format!(" AND tail={tail}{only_if}");
        }
        // `waited` first: it asks for the tail as it was.
        columns.push(("waited", format!("({waited} OR {joins} OR tail>{tail})")));
        columns.push(("tail", format!("tail+{joins}")));
        let assigned = columns
            .iter()
            .map(|(name, value)| format!("{name}={value}"));
        let assigned = assigned.collect::<Vec<_>>().join(",");
        format!("UPDATE {lock} SET {assigned} WHERE name={name} AND version={seen}{only_if}")
    }

    fn names(&self, prefix: &str, after: Option<&str>, limit: usize) -> String {
        let beyond = after.map_or(String::new(), |after| {
            format!(" AND l.name>{}", text::hex(after.as_bytes()))
        });
        format!(
            "SELECT l.name,(SELECT COUNT(*) FROM {} w WHERE w.name=l.name AND w.until>{NOW}) FROM {} l \
             WHERE l.name>={prefix} AND LEFT(l.name,{length})={prefix}{beyond} AND (l.claim IS NOT NULL OR l.shared>0 OR l.waited=1) \
             ORDER BY l.name LIMIT {limit}",
            self.table("waiter"),
            self.table("lock"),
            prefix = text::hex(prefix.as_bytes()),
            length = prefix.len(),
        )
    }

    fn look_for_unused(&self, after: &str) -> String {
        let alive = |table: &str, until: &str| {
            let table = self.table(table);
            format!("EXISTS(SELECT 1 FROM {table} o WHERE o.name=l.name AND o.{until}>{NOW})")
        };
        format!(
            "SELECT name,version,tail,token,token<{NOW}-{UNUSED} AND broken IS NULL AND (claim IS NULL OR expires<={NOW}) \
             AND NOT(shared>0 AND {}) AND NOT(waited=1 AND {}) FROM {} l WHERE name>{} ORDER BY name LIMIT {LOOK}",
            alive("hold", "expires"),
            alive("waiter", "until"),
            self.table("lock"),
            text::hex(after.as_bytes())
        )
    }

    /// Without waiting for a row. The floor first: a name that is forgotten then has a token that is not above it.
    ///
    /// Every change of a name, of its holds and of its queue moves its version or its tail, so none of these rows is in use.
    fn forget(&self, names: &[Looked]) -> Vec<String> {
        let hex = |name: &Looked| text::hex(name.name.as_bytes());
        let all: Vec<String> = names.iter().map(hex).collect();
        let floor = names.iter().map(|name| name.token).max().unwrap_or(0);
        let (lock, meta) = (self.table("lock"), self.table("meta"));
        let mut statements = vec![
            format!(
                "SELECT 1 FROM {lock} WHERE name IN ({}) ORDER BY name FOR UPDATE NOWAIT",
                all.join(",")
            ),
            format!("SELECT 1 FROM {meta} WHERE floor<{floor} FOR UPDATE NOWAIT"),
            format!("UPDATE {meta} SET floor={floor} WHERE floor<{floor}"),
        ];
        for name in names {
            let (hex, version, tail) = (hex(name), name.version, name.tail);
            let same = format!("name={hex} AND version={version} AND tail={tail}");
            for table in ["hold", "waiter"] {
                let table = self.table(table);
                statements.push(format!(
                    "DELETE FROM {table} WHERE name={hex} AND EXISTS(SELECT 1 FROM {lock} WHERE {same})"
                ));
            }
            statements.push(format!("DELETE FROM {lock} WHERE {same}"));
        }
        statements
    }

    fn save_latch(
        &self,
        name: &Name,
        id: ClaimId,
        (seen, version): (Option<i64>, i64),
        change: LatchChange,
        not_after: u64,
    ) -> Vec<String> {
        let (latch, arrival) = (self.table("latch"), self.table("arrival"));
        let (name, id, in_time) = (text::name(name), text::claim(id), in_time(not_after));
        // A version that none has, if there was no row.
        let seen = seen.unwrap_or_default();
        match change {
            LatchChange::Set(count) => vec![format!(
                "INSERT IGNORE INTO {latch} SELECT {name},{version},{count} FROM DUAL WHERE TRUE{in_time}"
            )],
            LatchChange::Arrive => vec![
                format!(
                    "UPDATE {latch} SET remaining=remaining-1,version={version} WHERE name={name} AND version={seen}{in_time}"
                ),
                format!(
                    "INSERT IGNORE INTO {arrival} SELECT {name},{id} FROM {latch} WHERE name={name} AND version={version}"
                ),
            ],
            LatchChange::Open => vec![
                format!("DELETE FROM {latch} WHERE name={name} AND version={seen}{in_time}"),
                format!("DELETE FROM {arrival} WHERE ROW_COUNT()=1 AND name={name}"),
            ],
        }
    }
}

/// A condition on the row of `lock`: the exclusive hold of another claim lives, and it is not too late.
fn held_by_another(claim: &Claim, not_after: u64) -> String {
    format!(
        "name={} AND claim<>{} AND expires>{NOW} AND expires<={NOW}+lease+{SECOND}{}",
        text::name(&claim.name),
        text::claim(claim.id),
        in_time(not_after)
    )
}

/// The exclusive hold, and the last break.
fn holder_columns(save: &Save) -> Vec<(&'static str, String)> {
    let mut columns = match &save.exclusive {
        None => vec![("claim", "NULL".to_owned())],
        Some(hold) => vec![
            ("claim", text::claim(hold.claim)),
            ("mode", mode_columns(hold.mode).0.to_string()),
            ("first", hold.grant.token.get().to_string()),
            ("tokens", hold.grant.tokens.to_string()),
            ("lease", text::lease(hold.lease).to_string()),
            ("expires", micros(hold.expires).to_string()),
            ("since", hold.since_micros.to_string()),
            ("label", text::label(hold.label.as_ref())),
        ],
    };
    if let Some(broken) = &save.broken {
        let at = broken.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        columns.push(("reason", text::hex(broken.reason.as_bytes())));
        columns.push(("broken", text::lease(at).to_string()));
    }
    columns
}

/// What a server's answers to the statements of a step mean. `None` if they fit no such step.
pub(super) fn read(op: &Op, said: &[Said]) -> Option<Reply> {
    let done = |did: bool| if did { Reply::Done } else { Reply::Miss };
    Some(match op {
        Op::Take { claim, .. } => match said {
            [Said::Done { rows: 1, id }, ..] => Reply::Granted(Grant {
                token: Token::new(*id),
                tokens: claim.reserve.max(1),
            }),
            [_, Said::Rows(rows)] => free_in(rows).unwrap_or(Reply::Miss),
            _ => Reply::Miss,
        },
        Op::Append { .. } => {
            let (before, append) = said.split_at_checked(said.len().checked_sub(APPEND)?)?;
            match (before, append) {
                ([Said::Done { rows: 1, .. }, ..], [.., Said::Rows(rows)]) => free_in(rows)?,
                ([.., Said::Done { rows: 1, .. }, Said::Rows(rows)], _) => held(rows)?,
                (_, [Said::Done { rows: 1, .. }, .., Said::Rows(rows)]) => free_in(rows)?,
                _ => Reply::Miss,
            }
        }
        Op::Prolong { .. } => {
            let [alone, _, shared] = said else {
                return None;
            };
            done(changed(alone)? > 0 || changed(shared)? > 0)
        }
        Op::Free { .. } | Op::Save(_) | Op::SaveLatch { .. } => done(changed(said.first()?)? > 0),
        Op::Enlist(..) => Reply::Done,
        Op::Look { .. } => rows::looked(selected(said)?)?,
        Op::Forget(_) => Reply::Done,
        Op::Load { limit, .. } => rows::loaded(selected(said)?, *limit)?,
        Op::Count { .. } => Reply::Count(rows::number(selected(said)?.first()?, 0)?),
        Op::Names { .. } => rows::names(selected(said)?)?,
        Op::Processes(_) => rows::processes(selected(said)?)?,
        Op::LoadLatch { .. } => rows::latch(selected(said)?)?,
    })
}

fn changed(said: &Said) -> Option<u64> {
    match said {
        Said::Done { rows, .. } => Some(*rows),
        _ => None,
    }
}

fn selected(said: &[Said]) -> Option<&[Row]> {
    match said {
        [Said::Rows(rows)] => Some(rows),
        _ => None,
    }
}

fn held(rows: &[Row]) -> Option<Reply> {
    let row = rows.first()?;
    Some(Reply::Granted(Grant {
        token: Token::new(rows::number(row, 0)?),
        tokens: rows::number(row, 1)?,
    }))
}

fn free_in(rows: &[Row]) -> Option<Reply> {
    let micros: i64 = rows::number(rows.first()?, 0)?;
    Some(Reply::Held {
        free_in: Duration::from_micros(u64::try_from(micros).unwrap_or_default()),
    })
}
