//! What is on the wire: the requests to one node in either dialect, and their answers.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ::redis::Value;

use super::node::{Node, Silence};
use super::protocol::{Ask, Life, RoundId, Run, Terms, Vote};
use super::scripts;
use crate::clock::{Clock, Moment};
use crate::store::redis::answer::{Reply, with_label};
use crate::store::redis::breaking::Broke;
use crate::store::redis::keys::Keys;
use crate::store::redis::node::{Call, NodeSettings, Ticket};
use crate::store::redis::{BREAK_MEMORY, answer, millis};
use crate::store::{Break, ClaimId, Mode};
use crate::{Error, Label, Name};

/// How many holds one script renews: longer ones would keep others waiting.
const RENEW_SLICE: usize = 64;

/// How requests are written.
#[derive(Debug)]
pub(super) struct Dialect {
    pub plain: bool,
    settings: NodeSettings,
    /// Our channel and our process, as they are written into holds.
    who: String,
    /// How long a fence is kept, in ms.
    keep: String,
    lead: u64,
}

/// A round that is over. Without a run nothing is known of it but the claim.
#[derive(Clone, Copy, Debug)]
pub(super) struct LettingGo {
    pub round: RoundId,
    pub run: Option<Run>,
}

/// One hold to renew, or only to ask about.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The key at its name.
    pub main: String,
    pub claim: ClaimId,
    /// 0: whichever it is.
    pub round: u64,
    pub lease: Duration,
    /// When it is void.
    pub not_after: Moment,
}

fn letter(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "r",
        Mode::Write => "w",
        _ => "x",
    }
}

impl Dialect {
    pub fn new(settings: &NodeSettings, who: String, terms: &Terms) -> Dialect {
        let keep = settings.token_retention();
        Dialect {
            plain: settings.is_plain(),
            settings: settings.clone(),
            who,
            keep: keep.map_or(0, |keep| keep.as_millis()).to_string(),
            lead: terms.lead.as_micros() as u64,
        }
    }

    pub fn keys(&self, name: &Name) -> Result<Keys, Error> {
        self.settings.keys(name)
    }

    fn fence(&self, keys: &Keys) -> String {
        match self.plain {
            true => keys.plain_token(),
            false => keys.fence(),
        }
    }

    /// Where those who wait hear that a name may be free.
    pub fn channels(&self, name: &Name) -> Result<Vec<String>, Error> {
        let keys = self.keys(name)?;
        Ok(match self.plain {
            true => vec![keys.listen_channel()],
            false => vec![keys.lock_channel(), keys.rw_channel()],
        })
    }

    /// Asks for votes, or to keep a hold again: what is the same for all nodes.
    pub fn votes(&self, keys: &Keys, ask: &Ask, label: Option<&Label>, re_add: bool) -> Call {
        let script = match self.plain {
            true => &scripts::PLAIN_ACQUIRE,
            false => &scripts::ACQUIRE,
        };
        let Ask { round, run, .. } = ask;
        let since = Clock::real().unix_micros();
        let (last, count, number) = (run.last(), run.count, round.number);
        let who = match self.plain {
            true => {
                let who = with_label(&self.who, label);
                format!("{}ms {who}", millis(ask.lease)).into()
            }
            false => Cow::from(&self.who),
        };
        let call = Call::new(script, &[&keys.main, &self.fence(keys)])
            .arg(format!("{last} {count} {number} {since} {who}"))
            .arg(&self.keep)
            .arg(round.claim.to_string())
            .arg(letter(ask.mode))
            .arg(millis(ask.lease))
            .arg(run.first)
            .arg(last);
        let call = match re_add {
            false => call.arg(self.lead),
            true => call.arg(""),
        };
        let beside = ask.beside.map(|beside| beside.to_string());
        call.arg(number).arg(beside.unwrap_or_default())
    }

    /// Asks a node for its vote, or has it keep a hold again.
    pub fn vote(
        self: &Arc<Self>,
        node: &Arc<Node>,
        ticket: Ticket,
        keys: &Keys,
        ask: Ask,
        label: Option<&Label>,
        re_add: bool,
    ) -> impl Future<Output = Result<Vote, Silence>> + Send + 'static {
        let node = node.clone();
        let votes = self.votes(keys, &ask, label, re_add);
        let call = on_node(votes, ask.floor, ask.not_after, label);
        async move {
            let sent = Moment::now();
            let answer = node.clone().ask(ticket, call).await?;
            Ok(read_vote(&node, answer, sent)?)
        }
    }

    /// Lets go of a round, on any node.
    pub fn letting_go(&self, keys: &Keys, what: LettingGo) -> Call {
        let script = match self.plain {
            true => &scripts::PLAIN_RELEASE,
            false => &scripts::RELEASE,
        };
        let call = Call::new(script, &[&keys.main, &self.fence(keys)])
            .arg(what.round.claim.to_string())
            .arg(what.round.number)
            .arg(what.run.map_or(0, |run| run.last()))
            .arg(self.lead)
            .arg(&self.keep);
        match self.plain {
            true => call.arg(keys.listen_channel()),
            false => call,
        }
    }

    /// Has a node let go of a round. Answers whether it was held until now.
    pub fn let_go(
        self: &Arc<Self>,
        node: &Arc<Node>,
        ticket: Ticket,
        name: &Name,
        what: LettingGo,
    ) -> impl Future<Output = Result<Life, Silence>> + Send + 'static {
        let node = node.clone();
        let call = self.keys(name).map(|keys| self.letting_go(&keys, what));
        async move { Ok(read_life(&node.ask(ticket, call?).await?)) }
    }

    /// Has a node renew holds. One answer each, in their order.
    pub fn renew(
        self: &Arc<Self>,
        node: &Arc<Node>,
        ticket: Ticket,
        asked: Arc<[Asked]>,
    ) -> impl Future<Output = Result<Vec<Life>, Silence>> + Send + 'static {
        let (node, dialect) = (node.clone(), self.clone());
        async move {
            let script = match dialect.plain {
                true => &scripts::PLAIN_RENEW,
                false => &scripts::RENEW,
            };
            let mut lives = Vec::with_capacity(asked.len());
            for slice in asked.chunks(RENEW_SLICE) {
                let mains: Vec<&str> = slice.iter().map(|hold| hold.main.as_str()).collect();
                let mut call = Call::new(script, &mains);
                for hold in slice {
                    call = call
                        .arg(hold.claim.to_string())
                        .arg(hold.round)
                        .arg(millis(hold.lease))
                        .arg(node.link.server_time(hold.not_after).unwrap_or(0));
                }
                call = call.arg(&dialect.keep);
                let sent = Moment::now();
                let answer = node.clone().ask(ticket.clone(), call).await?;
                let answers = match &answer {
                    Value::Array(answers) => answers.as_slice(),
                    _ => &[],
                };
                let [answers @ .., Value::Int(now)] = answers else {
                    return Err(answer::nonsense(&answer).into());
                };
                node.link.saw_time(now.unsigned_abs(), sent);
                lives.extend(answers.iter().map(|answer| match answer {
                    // Too late, and nothing is said of the hold.
                    Value::Int(2) => Life::Silent,
                    answer => read_life(answer),
                }));
            }
            Ok(lives)
        }
    }

    /// What a node knows of a name.
    pub fn inspect(
        self: &Arc<Self>,
        node: &Arc<Node>,
        ticket: Ticket,
        keys: &Keys,
    ) -> impl Future<Output = Result<Value, Silence>> + Send + 'static {
        let script = match self.plain {
            true => &scripts::PLAIN_INSPECT,
            false => &scripts::INSPECT,
        };
        let call = Call::new(script, &[&keys.main, &self.fence(keys), &keys.broken()]);
        node.clone().ask(ticket, call)
    }

    /// Has a node end the holds of a name that are meant, unless it is later than this.
    pub fn break_lock(
        self: &Arc<Self>,
        node: &Arc<Node>,
        ticket: Ticket,
        keys: &Keys,
        request: &Break,
        not_after: Moment,
    ) -> impl Future<Output = Result<Broke, Silence>> + Send + 'static {
        let script = match self.plain {
            true => &scripts::PLAIN_BREAK,
            false => &scripts::BREAK,
        };
        let call = Call::new(script, &[&keys.main, &self.fence(keys), &keys.broken()])
            .arg(&request.reason)
            .arg(millis(BREAK_MEMORY))
            .arg(&self.keep)
            .arg(node.link.server_time(not_after).unwrap_or(0))
            .arg(&request.target.as_args());
        let call = match self.plain {
            true => call.arg(keys.listen_channel()),
            false => call,
        };
        let (node, sent) = (node.clone(), Moment::now());
        async move {
            let broke = Broke(Reply::new(node.clone().ask(ticket, call).await?)?);
            node.link.saw_time(broke.0.number(1)?, sent);
            Ok(broke)
        }
    }
}

/// A call for votes, with what is another on each node.
pub(super) fn on_node(
    votes: Call,
    floor: u64,
    not_after: Option<u64>,
    label: Option<&Label>,
) -> Call {
    let votes = votes.arg(floor).arg(not_after.unwrap_or(0));
    votes.arg(label.map(|label| format!(" {label}")))
}

pub(super) fn read_life(answer: &Value) -> Life {
    match answer {
        Value::Int(1) => Life::Alive,
        _ => Life::Gone,
    }
}

/// A number is short for a yes at that time of the node.
pub(super) fn read_vote(node: &Node, answer: Value, sent: Moment) -> Result<Vote, Error> {
    if let Value::Int(now) = answer {
        node.link.saw_time(now.unsigned_abs(), sent);
        return Ok(Vote::Yes);
    }
    let reply = Reply::new(answer)?;
    let now = reply.number(1)?;
    node.link.saw_time(now, sent);
    Ok(match reply.number(0)? {
        1 => Vote::Yes,
        0 => Vote::Busy {
            free_in: u64::try_from(reply.signed(2)?)
                .ok()
                .map(Duration::from_millis),
            holder: Some(reply.number(3)?).filter(|token| *token > 0),
        },
        2 => Vote::TooLate,
        3 => Vote::Stale {
            last: reply.number(2)?,
            now,
        },
        _ => Vote::Ahead {
            last: reply.number(2)?,
            now,
        },
    })
}
