//! Asking the nodes of a cluster who serves what.

use std::sync::Arc;
use std::time::Duration;

use ::redis::{Cmd, RedisResult, Value};

use super::answer::nonsense;
use super::checks::not_a_cluster;
use super::connection::Connection;
use super::fault::{Fault, explain, unavailable, words};
use super::keys::WAKE;
use super::slots::{SLOTS, Slots};
use super::transport::{Link, Topic};
use super::url::Settings;
use crate::Error;
use crate::store::common::Address;

/// How long a node may take to say who serves what, before another is asked.
const SURVEY_PATIENCE: Duration = Duration::from_millis(500);

/// Asks one node after the other until one is content with its cluster: one that was cut off from the
/// others knows nothing new. Those that we are connected to come first.
pub(super) async fn again(
    settings: &Settings,
    nodes: &[Arc<Connection>],
    others: &[Address],
) -> Option<Slots> {
    let mut second_best = None;
    for node in nodes {
        let asking = async {
            let [slots, info] = questions();
            let slots = node.send(&slots, false).await?;
            Ok::<_, Fault>((slots, node.send(&info, false).await?))
        };
        let asked = tokio::time::timeout(SURVEY_PATIENCE, asking).await;
        if let Ok(Ok((slots, info))) = asked {
            match Slots::read(&slots, &node.address()) {
                Some(slots) if is_ok(&info) => return Some(slots),
                slots => second_best = second_best.or(slots),
            }
        }
    }
    for other in others {
        let questions = questions();
        let asking = ask(settings, other, &questions, None);
        let asked = tokio::time::timeout(SURVEY_PATIENCE, asking).await;
        if let Ok(Ok(answers)) = asked
            && let [Ok(slots), Ok(info)] = answers.as_slice()
        {
            match Slots::read(slots, other) {
                Some(slots) if is_ok(info) => return Some(slots),
                slots => second_best = second_best.or(slots),
            }
        }
    }
    second_best
}

fn questions() -> [Cmd; 2] {
    let question = |what: &str| {
        let mut cmd = ::redis::cmd("CLUSTER");
        cmd.arg(what);
        cmd
    };
    [question("SLOTS"), question("INFO")]
}

/// Asks a server that may be of any kind, over a connection that ends with the answers. The first time, the last question is
/// whether it lets us subscribe to `probe`.
async fn ask(
    settings: &Settings,
    address: &Address,
    questions: &[Cmd],
    probe: Option<Topic>,
) -> Result<Vec<RedisResult<Value>>, Error> {
    let limit = settings.connect_timeout;
    let asking = async {
        let login = settings.login(probe.is_some());
        let link = Link::open(address, settings, login, |_| {}).await?;
        let mut answers = Vec::new();
        for question in questions {
            let answer = link.socket.send(question).await;
            answers.push(answer.and_then(Value::extract_error));
        }
        if let Some(probe) = probe {
            let answer = link.socket.subscribe(&[probe]).await;
            answers.push(answer.map(|()| Value::Okay));
        }
        Ok(answers)
    };
    match tokio::time::timeout(limit, asking).await {
        Ok(answers) => answers,
        Err(_) => Err(unavailable(format!(
            "{address} did not answer within {limit:?}"
        ))),
    }
}

fn is_ok(info: &Value) -> bool {
    info_says(info, "cluster_state") == Some("ok")
}

fn info_says<'a>(info: &'a Value, what: &str) -> Option<&'a str> {
    let text = match info {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).ok()?,
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => text,
        _ => return None,
    };
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| *key == what).map(|(_, value)| value)
}

/// Asks the seeds who serves what, and whether there are sharded channels: Redisson's clients ask the same.
pub(super) async fn first(settings: &Settings, seeds: &[Address]) -> Result<(Slots, bool), Error> {
    let [slots, info] = questions();
    let mut sharded = ::redis::cmd("PUBSUB");
    sharded.arg("SHARDNUMSUB");
    // Without this a waiter would be passed over in the line. Permission is asked before who serves the slot.
    let wake = Topic::Shard(format!("{WAKE}{{probe}}:probe"));
    let questions = [slots, info, sharded];
    let mut failures = Vec::new();
    for seed in seeds {
        let failure = match ask(settings, seed, &questions, Some(wake.clone())).await {
            Ok(answers) => match answers.as_slice() {
                [Ok(_), Ok(_), Ok(_), Err(error)] if error.code() == Some("NOPERM") => {
                    explain(error)
                }
                [Ok(slots), Ok(info), sharded, _] => match judge(slots, info, seed) {
                    Ok(slots) => return Ok((slots, sharded.is_ok())),
                    Err(failure) => failure,
                },
                [Err(error), ..] if words(error).contains("cluster support disabled") => {
                    not_a_cluster(seed)
                }
                answers => {
                    let mut errors = answers.iter().filter_map(|answer| answer.as_ref().err());
                    errors
                        .next()
                        .map_or_else(|| unavailable("no answer".into()), explain)
                }
            },
            Err(failure) => failure,
        };
        // Whatever the other seeds say, this does not pass by itself.
        if !failure.is_transient() {
            return Err(failure);
        }
        failures.push(match failure {
            Error::Unavailable { reason, .. } => format!("{seed}: {reason}"),
            other => format!("{seed}: {other}"),
        });
    }
    Err(unavailable(format!(
        "no node of the cluster can be used: {}",
        failures.join("; ")
    )))
}

fn judge(slots: &Value, info: &Value, seed: &Address) -> Result<Slots, Error> {
    let slots = Slots::read(slots, seed).ok_or_else(|| nonsense(slots))?;
    if slots.served() == 0 {
        return Err(unavailable(
            "it serves no slots; create the cluster first, with `redis-cli --cluster create`"
                .into(),
        ));
    }
    if info_says(info, "cluster_state") == Some("fail") {
        return Err(unavailable(format!(
            "the cluster is down (cluster_state:fail): {} of {SLOTS} slots have a master, {} of them a reachable one",
            slots.served(),
            info_says(info, "cluster_slots_ok").unwrap_or("not all"),
        )));
    }
    Ok(slots)
}
