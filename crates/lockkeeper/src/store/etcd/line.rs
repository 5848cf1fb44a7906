//! Which claims contend for a name, and whose turn it is: pure.

use std::collections::HashSet;

use super::client::messages::KeyValue;
use super::data::Data;
use super::keys::{Kind, Part};
use crate::store::Mode;

/// A key that wants the name.
#[derive(Clone, PartialEq, Debug)]
pub struct Contender {
    pub key: Vec<u8>,
    pub part: Part,
    /// The revision that created it.
    pub created: i64,
    /// Where it stands: the lowest is first.
    pub place: i64,
    /// Whether it can stand beside nobody.
    pub alone: bool,
    /// Whether it is a writer that has gone and only keeps the place of a reader.
    pub gone: bool,
    /// The lease that it ends with.
    pub lease: i64,
    /// What it says, if that was asked for.
    pub value: Vec<u8>,
}

impl Contender {
    /// The limit and the count of a claim for permits.
    fn weight(&self) -> Option<(u32, u32)> {
        match (self.part.kind, Data::read(&self.value)?.mode) {
            (Kind::Permit, Mode::Permit { limit, count }) => Some((limit, count)),
            _ => None,
        }
    }
}

/// The contenders of a name, in their order.
#[derive(Clone, Debug, Default)]
pub struct Line(Vec<Contender>);

/// What a look at the line says of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is its turn.
    Turn,
    /// It has to wait for the end of this key, or of any if there is none.
    Behind(Option<Vec<u8>>),
    /// Its key is not there, or is another one.
    Gone,
}

impl Line {
    /// The contenders among the keys below `<name>/`.
    pub fn of(below: &[u8], keys: Vec<KeyValue>) -> Line {
        let mut all: Vec<Contender> = keys
            .into_iter()
            .filter_map(|kv| {
                let part = Part::read(kv.key.strip_prefix(below)?)?;
                Some(Contender {
                    part,
                    created: kv.create_revision,
                    place: kv.create_revision,
                    alone: matches!(part.kind, Kind::Write | Kind::Plain),
                    gone: false,
                    lease: kv.lease,
                    key: kv.key,
                    value: kv.value,
                })
            })
            .collect();
        let of = |kind: Kind, all: &[Contender]| -> HashSet<(i64, u64)> {
            let ids = all.iter().filter(|one| one.part.kind == kind);
            ids.filter_map(|one| one.part.id).collect()
        };
        let (writers, readers) = (of(Kind::Write, &all), of(Kind::Read, &all));
        let places: Vec<((i64, u64), i64)> = all
            .iter()
            .filter(|one| one.part.kind == Kind::Write)
            .filter_map(|one| Some((one.part.id?, one.created)))
            .collect();
        // A reader with a writer's number is the note that the writer has gone.
        all.retain(|one| {
            let id = one.part.id.filter(|_| one.part.kind == Kind::Read);
            id.is_none_or(|id| !writers.contains(&id))
        });
        for one in &mut all {
            if one.part.kind == Kind::Write && one.part.id.is_some_and(|id| readers.contains(&id)) {
                (one.alone, one.gone) = (false, true);
            }
            if let (Some((lease, _)), Some(writer)) = (one.part.id, one.part.in_place_of)
                && let Some((_, place)) = places.iter().find(|(id, _)| *id == (lease, writer))
            {
                one.place = *place;
            }
        }
        all.sort_by_key(|one| (one.place, one.created));
        Line(all)
    }

    /// All, in their order.
    pub fn all(&self) -> &[Contender] {
        &self.0
    }

    pub fn find(&self, key: &[u8]) -> Option<&Contender> {
        self.0.iter().find(|one| one.key == key)
    }

    /// Whether a claim that would come now would have to wait.
    pub fn is_busy_for(&self, mode: Mode) -> bool {
        self.blocker(i64::MAX, mode).is_some()
    }

    /// How a claim stands whose key was created by this revision.
    pub fn judge(&self, key: &[u8], created: i64, mode: Mode) -> Verdict {
        let Some(own) = self.find(key).filter(|own| own.created == created) else {
            return Verdict::Gone;
        };
        match self.blocker(own.place, mode) {
            Some(before) if matches!(mode, Mode::Permit { .. }) => {
                // Room may come from any that is before it.
                let lock = (before.part.kind != Kind::Permit).then(|| before.key.clone());
                Verdict::Behind(lock)
            }
            Some(before) => Verdict::Behind(Some(before.key.clone())),
            None => Verdict::Turn,
        }
    }

    /// The last contender before this place that is in the way.
    fn blocker(&self, place: i64, mode: Mode) -> Option<&Contender> {
        let before = self.0.iter().take_while(|one| one.place < place);
        match mode {
            Mode::Permit { limit, count } => {
                let (mut taken, mut smallest) = (u64::from(count), limit);
                let (mut last, mut lock) = (None, None);
                for one in before {
                    last = Some(one);
                    match one.weight() {
                        Some((limit, count)) => {
                            taken += u64::from(count);
                            smallest = smallest.min(limit);
                        }
                        None => lock = Some(one),
                    }
                }
                lock.or(last.filter(|_| taken > u64::from(smallest)))
            }
            Mode::Read => before
                .filter(|one| one.alone || one.part.kind == Kind::Permit)
                .last(),
            _ => before.last(),
        }
    }

    /// Those whose turn it is, and those that wait. Values have to be there where permits are.
    pub fn parted(&self) -> (Vec<&Contender>, Vec<&Contender>) {
        let (mut holders, mut waiters) = (Vec::new(), Vec::new());
        for one in self.0.iter().filter(|one| !one.gone) {
            let mode = match one.part.kind {
                Kind::Read => Mode::Read,
                Kind::Write | Kind::Plain => Mode::Exclusive,
                Kind::Permit => match one.weight() {
                    Some((limit, count)) => Mode::Permit { limit, count },
                    None => Mode::Exclusive,
                },
            };
            match self.blocker(one.place, mode) {
                None => holders.push(one),
                Some(_) => waiters.push(one),
            }
        }
        (holders, waiters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::etcd::data::Fence;
    use crate::store::etcd::keys::Keys;
    use crate::store::{ClaimId, Process};
    use std::time::Duration;

    const WRITE: Mode = Mode::Write;

    fn keys() -> Keys {
        Keys::below("")
    }

    fn kv(key: Vec<u8>, created: i64, value: Vec<u8>) -> KeyValue {
        KeyValue {
            key,
            create_revision: created,
            mod_revision: created,
            value,
            lease: 5,
        }
    }

    fn claim(mode: Mode, number: u64, created: i64) -> KeyValue {
        let data = Data {
            claim: ClaimId::UNKNOWN,
            process: Process::new("h", 1, "p"),
            mode,
            lease: Duration::from_secs(1),
            fence: Fence::Base(0),
            tokens: 1,
            label: None,
            since_millis: 0,
        };
        kv(keys().claim("a", mode, 5, number), created, data.write())
    }

    fn line(all: &[KeyValue]) -> Line {
        Line::of(b"a/", all.to_vec())
    }

    fn judge(line: &Line, of: &KeyValue, mode: Mode) -> Verdict {
        line.judge(&of.key, of.create_revision, mode)
    }

    fn behind(of: &KeyValue) -> Verdict {
        Verdict::Behind(Some(of.key.clone()))
    }

    #[test]
    fn the_lowest_revision_of_any_client_is_first() {
        let all = [
            claim(WRITE, 1, 30),
            kv(b"a/694d77aa9e38260f".to_vec(), 20, Vec::new()),
            claim(Mode::Exclusive, 2, 40),
            kv(b"a/b/694d77aa9e38260f".to_vec(), 1, Vec::new()),
        ];
        let line = line(&all);
        assert_eq!(line.all().len(), 3, "a nested name is none");
        assert_eq!(judge(&line, &all[0], WRITE), behind(&all[1]));
        assert_eq!(judge(&line, &all[2], Mode::Exclusive), behind(&all[0]));
        let again = KeyValue {
            create_revision: 31,
            ..all[0].clone()
        };
        assert_eq!(judge(&line, &again, WRITE), Verdict::Gone, "another one");
        assert!(line.is_busy_for(Mode::Read) && line.is_busy_for(WRITE));
    }

    #[test]
    fn a_reader_waits_for_the_last_writer_before_it() {
        let all = [
            claim(Mode::Read, 1, 1),
            claim(WRITE, 2, 2),
            claim(Mode::Read, 3, 3),
            claim(WRITE, 4, 4),
            kv(b"a/read/1700000000000000000".to_vec(), 5, Vec::new()),
        ];
        let line = line(&all);
        assert_eq!(judge(&line, &all[0], Mode::Read), Verdict::Turn);
        assert_eq!(judge(&line, &all[1], WRITE), behind(&all[0]));
        assert_eq!(judge(&line, &all[2], Mode::Read), behind(&all[1]));
        assert_eq!(judge(&line, &all[3], WRITE), behind(&all[2]));
        let (holders, waiters) = line.parted();
        assert_eq!((holders.len(), waiters.len()), (1, 4));
    }

    #[test]
    fn a_writer_that_became_a_reader_keeps_its_place() {
        let (writer, later) = (claim(WRITE, 1, 10), claim(WRITE, 2, 12));
        let reader = kv(keys().reader_beside("a", 5, 1, 3), 15, Vec::new());
        let other = claim(Mode::Read, 4, 11);
        let both = line(&[writer.clone(), reader.clone(), later.clone(), other.clone()]);
        assert_eq!(judge(&both, &reader, Mode::Read), Verdict::Turn);
        assert_eq!(judge(&both, &writer, WRITE), Verdict::Turn);
        assert_eq!(judge(&both, &other, Mode::Read), behind(&writer));
        // The writer goes; its key stays for clients that know nothing of this.
        let note = kv(keys().gone("a", 5, 1), 16, Vec::new());
        let after = line(&[
            writer.clone(),
            reader.clone(),
            later.clone(),
            other.clone(),
            note,
        ]);
        assert_eq!(judge(&after, &reader, Mode::Read), Verdict::Turn);
        assert_eq!(judge(&after, &other, Mode::Read), Verdict::Turn);
        assert_eq!(judge(&after, &later, WRITE), behind(&other));
        let (holders, waiters) = after.parted();
        assert_eq!((holders.len(), waiters.len()), (2, 1), "it holds no more");
    }

    #[test]
    fn permits_add_up_and_nobody_overtakes() {
        let permit = |limit, count| Mode::Permit { limit, count };
        let all = [
            claim(permit(3, 1), 1, 1),
            claim(permit(3, 2), 2, 2),
            claim(permit(3, 1), 3, 3),
            claim(WRITE, 4, 4),
            claim(permit(9, 1), 5, 5),
        ];
        let whole = line(&all);
        assert_eq!(judge(&whole, &all[1], permit(3, 2)), Verdict::Turn);
        assert_eq!(
            judge(&whole, &all[2], permit(3, 1)),
            Verdict::Behind(None),
            "any that goes may leave room"
        );
        assert_eq!(judge(&whole, &all[3], WRITE), behind(&all[2]));
        assert_eq!(judge(&whole, &all[4], permit(9, 1)), behind(&all[3]));
        let (holders, waiters) = whole.parted();
        assert_eq!((holders.len(), waiters.len()), (2, 3));
        let less = line(&all[1..3]);
        assert_eq!(judge(&less, &all[2], permit(3, 1)), Verdict::Turn);
        assert!(less.is_busy_for(permit(3, 1)) && !less.is_busy_for(permit(9, 0)));
    }
}
