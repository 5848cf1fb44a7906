//! The numbers of a side.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::text::Text;

/// What a number counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Things.
    Count,
    /// Milliseconds.
    Ms,
}

/// A kind of number.
#[derive(Clone, Debug, Serialize)]
pub struct Measure {
    /// What programs call it.
    pub key: &'static str,
    /// What people call it.
    pub label: Text,
    /// What it counts.
    pub unit: Unit,
}

/// A number.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Of which kind.
    #[serde(flatten)]
    pub measure: Measure,
    /// How many.
    pub value: i64,
}

impl Measure {
    /// A number of this kind.
    pub fn figure(&self, value: i64) -> Figure {
        let measure = self.clone();
        Figure { measure, value }
    }
}

/// The numbers of a side, in the order in which they are shown; as JSON a map from key to value.
#[derive(Clone, Debug, Default)]
pub struct Figures(pub Vec<Figure>);

impl Figures {
    /// Adds one.
    pub fn add(&mut self, measure: &Measure, value: i64) {
        self.0.push(measure.figure(value));
    }

    /// The number of this key.
    pub fn get(&self, key: &str) -> Option<i64> {
        let found = self.0.iter().find(|figure| figure.measure.key == key);
        found.map(|figure| figure.value)
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for figure in &self.0 {
            map.serialize_entry(figure.measure.key, &figure.value)?;
        }
        map.end()
    }
}

const fn count(key: &'static str, en: &'static str, zh: &'static str) -> Measure {
    Measure {
        key,
        label: Text::new(en, zh),
        unit: Unit::Count,
    }
}

const fn ms(key: &'static str, en: &'static str, zh: &'static str) -> Measure {
    Measure {
        key,
        label: Text::new(en, zh),
        unit: Unit::Ms,
    }
}

/// How many were in stock at first.
pub const STOCK: Measure = count("stock", "in stock at first", "初始库存");
/// How many sales the ledger has.
pub const SOLD: Measure = count("sold", "sold", "已售");
/// How many more than there were.
pub const OVERSOLD: Measure = count("oversold", "oversold", "超卖");
/// How many sales wrote over another that they had not seen.
pub const LOST_UPDATES: Measure = count("lost_updates", "lost updates", "丢失的更新");
/// What is left.
pub const LEFT: Measure = count("left", "left in stock", "剩余库存");
/// How many writes the stock refused by their token.
pub const REFUSED: Measure = count("refused", "refused by the fence", "被栅栏拒绝的写入");
/// For how long two believed that they held the lock.
pub const OVERLAP: Measure = ms("overlap_ms", "two holders at once for", "同时持锁时长");
/// The longest that somebody waited.
pub const WAITED: Measure = ms("waited_ms", "longest wait", "最长等待");
/// How many requests were sent in a second in which nothing happened.
pub const COMMANDS: Measure = count(
    "commands",
    "requests in a quiet second",
    "平静一秒内的请求数",
);
/// How long a lock was free before the next had it.
pub const WOKEN: Measure = ms(
    "woken_ms",
    "free before the next had it",
    "释放到下一个持有的间隔",
);
/// When the holder learned of its loss, from the end of its lease; before it if negative.
pub const LEARNED: Measure = ms(
    "learned_ms",
    "learned of the loss, from the lease's end",
    "得知丢锁（相对租期结束）",
);
/// How long after the lock was granted to another its holder learned of the loss. Less than nothing: it knew before.
pub const TOLD: Measure = ms(
    "told_ms",
    "learned of the loss, from the next grant",
    "得知丢锁（相对另一方拿到锁）",
);
/// How many requests there were.
pub const REQUESTS: Measure = count("requests", "requests", "请求数");
/// How many requests were answered in a second.
pub const ANSWERED: Measure = count("requests_per_second", "answered a second", "每秒应答");
/// Within what time 99 of 100 answers came.
pub const P99: Measure = ms("p99_ms", "99 % answered within", "99% 应答时间");
