//! Forgets names that nobody uses any more, a few at a time.
//!
//! Each grant may make a name that is never used again. So every few grants a step looks at the rows of a few names, in the order of their
//! key, and forgets those that are not used. It looks at more names than there were grants, whatever it finds. It is as short as any other
//! request, however many names there are, and it waits for no row.
//!
//! A keeper goes on where its last step ended. Its first place is one at random, near to the name that was granted: a process that lives
//! for one lock only does one step in a while, and many of them look everywhere. Names that are no longer used are often beside those
//! that are.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::Shared;
use super::engine::{Engine, LOOK, Op, Reply};
use crate::Name;
use crate::clock::Moment;

/// A step comes after this many grants.
const EVERY: u32 = 16;
/// How long it takes until the next one at least, after one that found nothing.
const REST: Duration = Duration::from_secs(1);

/// Where the next step is, and when.
#[derive(Debug)]
pub(super) struct Walk {
    grants: AtomicU32,
    place: Mutex<Place>,
}

#[derive(Debug, Default)]
struct Place {
    /// The last name that was looked at.
    after: Option<String>,
    /// Whether a step is under way.
    walks: bool,
    rests_until: Option<Moment>,
}

impl Default for Walk {
    fn default() -> Walk {
        Walk {
            // So that of many short processes some begin with a step.
            grants: AtomicU32::new(random() as u32 % EVERY),
            place: Mutex::default(),
        }
    }
}

impl Walk {
    /// Counts a grant. Returns after which name to look, if it is time for a step.
    fn begin(&self, granted: &Name) -> Option<String> {
        if self.grants.fetch_add(1, Relaxed) % EVERY != EVERY - 1 {
            return None;
        }
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        let rests = place.rests_until.is_some_and(|end| Moment::now() < end);
        if place.walks || rests {
            return None;
        }
        place.walks = true;
        let after = place.after.take();
        Some(after.unwrap_or_else(|| somewhere(granted, random())))
    }

    /// A step has ended.
    fn end(&self, after: String, found: bool) {
        let mut place = self.place.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Place {
            after: Some(after),
            walks: false,
            rests_until: (!found).then(|| Moment::now() + REST),
        };
    }
}

impl<E: Engine> Shared<E> {
    /// Forgets a few names after some of the grants. Nobody waits for it.
    pub(super) fn tidy_now_and_then(&self, granted: &Name) {
        let Some(after) = self.walk.begin(granted) else {
            return;
        };
        if let Some(shared) = self.me.upgrade() {
            self.runtime.spawn(async move {
                let (after, found) = shared.tidy(after).await;
                shared.walk.end(after, found);
            });
        }
    }

    /// Looks at the names after one, and forgets those that nobody uses. Returns where the next step begins, and whether there were any.
    async fn tidy(&self, mut after: String) -> (String, bool) {
        loop {
            let look = Op::Look {
                after: after.clone(),
            };
            let Ok(Reply::Looked(names)) = self.ask(look).await else {
                return (after, false);
            };
            // Behind the last name comes the first.
            if names.is_empty() && !after.is_empty() {
                after.clear();
                continue;
            }
            after = match names.last() {
                Some(last) if names.len() >= LOOK => last.name.clone(),
                _ => String::new(),
            };
            let mut unused = names;
            unused.retain(|name| name.unused);
            let found = !unused.is_empty();
            if found {
                // Where somebody was in the way, they are still there the next time.
                let _ = self.ask(Op::Forget(unused)).await;
            }
            return (after, found);
        }
    }
}

/// A place among the names, near to one of them: a beginning of it, and any character.
fn somewhere(name: &Name, random: u64) -> String {
    let (cut, character) = (random as u32 as usize, (random >> 32) as u8);
    let kept = cut % (name.chars().count() + 1);
    let mut place: String = name.chars().take(kept).collect();
    place.push((b'!' + character % (b'~' - b'!' + 1)) as char);
    place
}

/// As good as random: 122 of its bits are.
fn random() -> u64 {
    let bits = Uuid::new_v4().as_u128();
    (bits >> 64) as u64 ^ bits as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_grant_of_many_short_processes_in_sixteen_begins_a_step() {
        let name = Name::new("job").expect("a name");
        let begun = (0..3_200).filter(|_| Walk::default().begin(&name).is_some());
        let begun = begun.count();
        assert!((100..=320).contains(&begun), "{begun}");
    }

    #[test]
    fn a_walk_goes_on_where_it_was_and_rests_when_nothing_was_found() {
        let name = Name::new("job").expect("a name");
        let walk = Walk::default();
        let begins = || (0..EVERY).find_map(|_| walk.begin(&name));
        assert!(begins().is_some());
        assert_eq!(begins(), None, "one at a time");
        walk.end("here".into(), true);
        assert_eq!(begins().as_deref(), Some("here"));
        walk.end("there".into(), false);
        assert_eq!(begins(), None, "it rests");
    }

    #[test]
    fn first_places_are_spread_around_the_name() {
        let name = Name::new("名job").expect("a name");
        let mut places: Vec<String> = (0..500).map(|_| somewhere(&name, random())).collect();
        places.sort();
        places.dedup();
        assert!(places.len() > 200, "{places:?}");
        assert!(places.iter().any(|place| place.starts_with("名jo")));
        assert!(places.iter().any(|place| place.chars().count() == 1));
    }
}
