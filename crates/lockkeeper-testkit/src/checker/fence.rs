//! S3: at a fenced resource accepted tokens never decrease, and no update is lost.

use std::collections::BTreeMap;

use super::run::{Run, Write};
use super::{Rule, Violation};
use crate::history::{Answer, Entry};

/// Checks every resource: its own books where it has them, and what its writers were told.
pub(super) fn check(run: &Run, found: &mut Vec<Violation>) {
    let mut resources: Vec<&String> = run.writes.keys().chain(run.entries.keys()).collect();
    resources.sort_unstable();
    resources.dedup();
    for resource in resources {
        let writes = run.writes.get(resource).map_or(&[][..], Vec::as_slice);
        let entries = run.entries.get(resource).map_or(&[][..], Vec::as_slice);
        let mut books = Books {
            resource,
            found,
            by_seq: BTreeMap::new(),
        };
        books.enter(entries, writes);
        books.follow(entries.is_empty(), writes);
        books.order_of_answers(writes);
    }
}

/// The accepted writes of one resource.
struct Books<'a> {
    resource: &'a str,
    found: &'a mut Vec<Violation>,
    by_seq: BTreeMap<u64, Entry>,
}

impl Books<'_> {
    /// Puts the resource's entries and the writers' acknowledgements together; they have to agree.
    fn enter(&mut self, entries: &[Entry], writes: &[Write]) {
        for entry in entries {
            if let Some(other) = self.by_seq.insert(entry.seq, entry.clone()) {
                self.violation(format!("one number for two writes: {other:?}, {entry:?}"));
            }
        }
        for write in writes {
            let Some(Answer::Accepted { seq }) = write.answer else {
                continue;
            };
            let told = Entry {
                resource: self.resource.to_owned(),
                seq,
                token: write.token,
                base: write.base,
                value: write.value,
            };
            match self.by_seq.get(&seq) {
                Some(entry) if *entry == told && !entries.is_empty() => {}
                Some(entry) => {
                    let text = format!("acknowledged {told:?} but the number is of {entry:?}");
                    self.violation(text);
                }
                None if entries.is_empty() => drop(self.by_seq.insert(seq, told)),
                None => self.violation(format!("acknowledged but not there: {told:?}")),
            }
        }
    }

    /// Each accepted write starts from what the one before it wrote, with no lower token.
    fn follow(&mut self, from_answers: bool, writes: &[Write]) {
        // Without books of its own, a write of unknown outcome may fill a gap.
        let open = writes.iter().filter(|w| w.answer.is_none() && !w.failed);
        let mut spare = if from_answers { open.count() as u64 } else { 0 };
        let mut texts = Vec::new();
        let entries = self.by_seq.values();
        for (before, next) in entries.clone().zip(entries.skip(1)) {
            if next.token < before.token {
                texts.push(format!("a lower token later: {before:?}, then {next:?}"));
            }
            let missing = next.seq - before.seq - 1;
            if missing > spare {
                texts.push(format!("{missing} writes missing before {next:?}"));
            } else if missing == 0 && next.base != before.value {
                texts.push(format!("a lost update: {before:?}, then {next:?}"));
            }
            spare = spare.saturating_sub(missing);
        }
        texts.into_iter().for_each(|text| self.violation(text));
    }

    /// A write acknowledged before another was sent comes before it in the books.
    fn order_of_answers(&mut self, writes: &[Write]) {
        let accepted = |write: &Write| match (write.completed, &write.answer) {
            (Some(done), Some(Answer::Accepted { seq })) => Some((done, *seq)),
            _ => None,
        };
        let mut done: Vec<(u64, u64)> = writes.iter().filter_map(accepted).collect();
        done.sort_unstable();
        let mut sent: Vec<(u64, u64)> = writes
            .iter()
            .filter_map(|write| Some((write.invoked, accepted(write)?.1)))
            .collect();
        sent.sort_unstable();
        let (mut highest, mut next) = (0, 0);
        for (invoked, seq) in sent {
            while next < done.len() && done[next].0 < invoked {
                highest = highest.max(done[next].1);
                next += 1;
            }
            if seq < highest {
                self.violation(format!("write {seq} was sent after {highest} was answered"));
            }
        }
    }

    fn violation(&mut self, text: String) {
        self.found.push(Violation {
            rule: Rule::S3,
            at: self.resource.to_owned(),
            text,
        });
    }
}
