//! Numbers operations in the order in which they begin, so that a caller can wait for those that began before, and not for
//! those that begin later.

use std::collections::BTreeSet;

/// The operations that are under way.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    begun: u64,
    numbers: BTreeSet<u64>,
}

impl UnderWay {
    /// Begins an operation. Returns its number.
    pub fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.numbers.insert(self.begun);
        self.begun
    }

    pub fn end(&mut self, number: u64) {
        self.numbers.remove(&number);
    }

    /// The number of the last operation that began, whether it has ended or not; 0 if none began.
    pub fn last_begun(&self) -> u64 {
        self.begun
    }

    pub fn is_under_way(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    /// Whether all operations up to this one have ended.
    pub fn have_ended(&self, last: u64) -> bool {
        self.numbers.first().is_none_or(|first| *first > last)
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::UnderWay;

    #[test]
    fn a_wait_for_earlier_operations_ends_before_later_ones() {
        let mut under_way = UnderWay::default();
        assert!(under_way.have_ended(under_way.last_begun()));
        let [one, two, three] = [(); 3].map(|()| under_way.begin());
        under_way.end(two);
        assert!(!under_way.have_ended(two) && under_way.is_under_way(one));
        under_way.end(one);
        assert!(under_way.have_ended(two) && !under_way.have_ended(three));
        assert!(!under_way.is_empty() && under_way.last_begun() == three);
        under_way.end(three);
        assert!(under_way.is_empty() && under_way.have_ended(three));
    }
}
