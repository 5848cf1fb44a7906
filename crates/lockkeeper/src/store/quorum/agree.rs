//! Agrees with the nodes, and so with all clients, on the longest lease: see [`agree`].

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use ::redis::Value;

use super::gate::{RECORD, differs, read_record};
use super::gather::Gather;
use super::holds::NodeSet;
use super::node::Silence;
use super::protocol::{Agreement, Record, agree};
use super::{Inner, scripts};
use crate::store::redis::node::{Call, LinkWatch, Ticket};
use crate::{Error, duration};

/// How soon nodes without a record are looked at again.
const AGAIN: Duration = Duration::from_secs(1);

impl Inner {
    /// Gives nodes that have no record one, if that is right. Returns whether every node that is up has ours.
    pub(super) async fn agree(self: &Arc<Self>) -> bool {
        if self.all_agree() {
            return true;
        }
        self.read_records().await;
        match agree(&self.terms, &self.known.records()) {
            Agreement::Settled => {}
            Agreement::Join(nodes) => {
                let mut writes = Gather::new();
                for number in nodes {
                    let inner = self.clone();
                    writes.add(number, async move { inner.write_record(number).await });
                }
                while writes.next_at_last().await.is_some() {}
            }
            Agreement::First(mut nodes) => {
                self.known.order(&mut nodes);
                for number in nodes {
                    if !self.write_record(number).await {
                        break;
                    }
                }
            }
            Agreement::Wait => self.say_unagreed(&self.who_is_silent()),
            Agreement::Disputed => self.say_unagreed(
                "it has no record of max_lease, and the other nodes have another than this client, or differ",
            ),
        }
        self.all_agree()
    }

    fn all_agree(&self) -> bool {
        let mut nodes = self.nodes.iter();
        nodes.all(|node| node.ticket().map_or(true, |ticket| node.agrees(&ticket)))
    }

    /// Why this client is refused, if the nodes have another record and none has ours.
    pub(super) fn outvoted(&self) -> Option<Error> {
        let (number, longest) = self.known.outvoted(&self.terms)?;
        let reason = differs(longest, &self.terms);
        let reason = format!("{}: {reason}", self.nodes[number].address);
        Some(Error::refused(super::STORE, self.with_nodes(&reason, &[])))
    }

    async fn read_records(self: &Arc<Self>) {
        let mut answers = Gather::new();
        let mut silent = NodeSet::all(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            if let Ok(ticket) = node.ticket() {
                let asked = node.clone().ask(ticket.clone(), call(""));
                answers.add(number, async move { (ticket, asked.await) });
            }
        }
        let mut patience = pin!(self.patience(self.node_timeout));
        while let Some((number, (ticket, answer))) = answers.next(patience.as_mut()).await {
            if self.found(number, &ticket, answer).is_ok() {
                silent.remove(number);
            }
        }
        let silent = (0..self.nodes.len()).filter(|number| silent.has(*number));
        silent.for_each(|number| self.known.is_silent(number));
        self.overdue(&answers, &mut vec![None; self.nodes.len()]);
    }

    /// Records our longest lease on a node that has none. Returns whether it has that now.
    async fn write_record(self: &Arc<Self>, number: usize) -> bool {
        let node = &self.nodes[number];
        let Ok(ticket) = node.ticket() else {
            return false;
        };
        let ours = self.terms.max_lease.as_millis().to_string();
        let mut answer = Gather::new();
        answer.add(number, node.clone().ask(ticket.clone(), call(&ours)));
        let mut patience = pin!(self.patience(self.node_timeout));
        let answer = match answer.next(patience.as_mut()).await {
            Some((_, answer)) => answer,
            None => Err(Silence::Lost(self.no_answer())),
        };
        match self.found(number, &ticket, answer) {
            Ok(found) => found == Some(self.terms.max_lease),
            Err(reason) => {
                node.is_unagreed(format!(
                    "it has no record of max_lease, and none can be written: {reason}"
                ));
                false
            }
        }
    }

    /// Takes note of what a node says of its record.
    fn found(
        &self,
        number: usize,
        ticket: &Ticket,
        answer: Result<Value, Silence>,
    ) -> Result<Option<Duration>, String> {
        let node = &self.nodes[number];
        let found = answer.and_then(|answer| Ok(read_record(&answer)?));
        let found = found.map_err(Silence::reason)?;
        self.known.reads(number, found);
        match found {
            Some(longest) if longest == self.terms.max_lease => node.is_agreed(ticket),
            // The next connection to it is refused, with the reason.
            Some(longest) => node.link.give_up(ticket, differs(longest, &self.terms)),
            None => {}
        }
        Ok(found)
    }

    fn say_unagreed(&self, reason: &str) {
        for node in &self.nodes {
            node.is_unagreed(reason.to_owned());
        }
    }

    fn who_is_silent(&self) -> String {
        let nodes = self.nodes.iter().zip(self.known.records());
        let silent = nodes.filter(|(_, record)| *record == Record::Silent);
        let silent: Vec<&str> = silent.map(|(node, _)| node.address.as_str()).collect();
        let ours = self.terms.max_lease;
        format!(
            "it has no record of max_lease ({RECORD:?}), and {} cannot be asked for theirs; it votes when they are back, or \
             once it is up for longer than any lease can be ({}). If they are gone for good, write the max_lease of all clients on \
             one of the other nodes: if it is {}, by redis-cli SET {RECORD} {}",
            silent.join(", "),
            duration::typed(self.terms.outlives),
            duration::typed(ours),
            ours.as_millis()
        )
    }
}

/// Agrees again whenever a node comes up, and for as long as one has no record.
pub(super) async fn keep_agreeing(inner: Weak<Inner>) {
    let mut changes = Gather::new();
    if let Some(inner) = inner.upgrade() {
        for (number, node) in inner.nodes.iter().enumerate() {
            changes.add(number, change(node.link.watch()));
        }
    }
    loop {
        let Some(strong) = inner.upgrade() else {
            return;
        };
        let settled = strong.agree().await;
        drop(strong);
        let again = async {
            match settled {
                true => std::future::pending().await,
                false => tokio::time::sleep(AGAIN).await,
            }
        };
        if let Some((number, watch)) = changes.next(pin!(again)).await {
            let Some(watch) = watch else { return };
            changes.add(number, change(watch));
        }
    }
}

/// Waits until a link may have come up. `None`: it is gone.
async fn change(mut watch: LinkWatch) -> Option<LinkWatch> {
    watch.changed().await.then_some(watch)
}

fn call(longest: &str) -> Call {
    Call::new(&scripts::JOIN, &[RECORD]).arg(longest)
}
