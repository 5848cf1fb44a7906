//! The rules of a count-down latch.

use crate::clock::Moment;
use crate::store::{LatchOp, LatchRequest, LatchState};

/// What a store has loaded about one latch. A latch that is open has no record.
///
/// ```
/// use lockkeeper::Name;
/// use lockkeeper::clock::Moment;
/// use lockkeeper::store::record::{Latch, LatchChange};
/// use lockkeeper::store::{ClaimId, KeeperId, LatchOp, LatchRequest};
///
/// let id = ClaimId { keeper: KeeperId::new(), number: 1 };
/// let now = Moment::now();
/// let request = LatchRequest::new(Name::new("ready")?, id, LatchOp::CountDown, now);
/// let (state, change) = Latch { count: 1, arrived: false }.apply(&request, now);
/// assert_eq!((state.count, change), (0, Some(LatchChange::Open)));
/// # Ok::<(), lockkeeper::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Latch {
    /// How many arrivals are still to come.
    pub count: u32,
    /// Whether the request's id has arrived before.
    pub arrived: bool,
}

/// What a store has to save about a latch.
///
/// ```
/// use lockkeeper::store::record::{Latch, LatchChange};
///
/// /// What a store keeps: nothing of a latch that is open.
/// fn save(row: &mut Option<Latch>, change: LatchChange) {
///     *row = match (change, row.take()) {
///         (LatchChange::Set(count), _) => Some(Latch { count, arrived: false }),
///         (LatchChange::Arrive, Some(latch)) => Some(Latch { count: latch.count - 1, arrived: true }),
///         (LatchChange::Open, _) | (LatchChange::Arrive, None) => None,
///     };
/// }
/// # let mut row = None;
/// # save(&mut row, LatchChange::Set(2));
/// # save(&mut row, LatchChange::Arrive);
/// # assert_eq!(row, Some(Latch { count: 1, arrived: true }));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LatchChange {
    /// The latch begins with this count, and nobody has arrived.
    Set(u32),
    /// The request's id has arrived.
    Arrive,
    /// The latch is open: it and its arrivals are forgotten.
    Open,
}

impl Latch {
    /// What a request does at this time.
    pub fn apply(self, request: &LatchRequest, now: Moment) -> (LatchState, Option<LatchChange>) {
        let open = self.count == 0;
        let change = match request.op {
            _ if now > request.not_after => None,
            LatchOp::Set(count) if open && count > 0 => Some(LatchChange::Set(count)),
            LatchOp::CountDown if self.count > 1 && !self.arrived => Some(LatchChange::Arrive),
            LatchOp::CountDown if self.count == 1 && !self.arrived => Some(LatchChange::Open),
            LatchOp::Open if !open => Some(LatchChange::Open),
            _ => None,
        };
        let count = match change {
            Some(LatchChange::Set(count)) => count,
            Some(LatchChange::Arrive) => self.count - 1,
            Some(LatchChange::Open) => 0,
            None => self.count,
        };
        let changed = change.is_some();
        (LatchState { count, changed }, change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Name;
    use crate::store::{ClaimId, KeeperId};

    fn ask(latch: Latch, op: LatchOp) -> (LatchState, Option<LatchChange>) {
        let request = LatchRequest {
            name: Name::new("latch").expect("a name"),
            id: ClaimId {
                keeper: KeeperId::from_bits(1),
                number: 1,
            },
            not_after: Moment::from_nanos(10),
            op,
        };
        let late = latch.apply(&request, Moment::from_nanos(11));
        assert_eq!(
            (late.0.changed, late.0.count, late.1),
            (false, latch.count, None)
        );
        latch.apply(&request, Moment::from_nanos(10))
    }

    fn closed(count: u32, arrived: bool) -> Latch {
        Latch { count, arrived }
    }

    #[test]
    fn a_latch_is_set_only_while_it_is_open() {
        let (state, change) = ask(closed(0, false), LatchOp::Set(3));
        assert_eq!((state.count, change), (3, Some(LatchChange::Set(3))));
        assert_eq!(ask(closed(2, false), LatchOp::Set(3)).0.count, 2);
        assert!(!ask(closed(0, false), LatchOp::Set(0)).0.changed);
    }

    #[test]
    fn an_arrival_counts_once() {
        let (state, change) = ask(closed(2, false), LatchOp::CountDown);
        assert_eq!((state.count, change), (1, Some(LatchChange::Arrive)));
        assert!(!ask(closed(2, true), LatchOp::CountDown).0.changed);
        assert!(!ask(closed(0, false), LatchOp::CountDown).0.changed);
    }

    #[test]
    fn the_last_arrival_opens_it_and_so_does_open() {
        for op in [LatchOp::CountDown, LatchOp::Open] {
            let (state, change) = ask(closed(1, false), op);
            assert_eq!((state.count, change), (0, Some(LatchChange::Open)));
        }
        assert!(!ask(closed(0, false), LatchOp::Open).0.changed);
        assert_eq!(ask(closed(5, true), LatchOp::Read).0.count, 5);
    }
}
