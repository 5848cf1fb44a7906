//! What is under way, by number: so that one can wait for what began before, and for nothing that begins later.

use std::collections::BTreeSet;

/// All that is under way, in the order in which it began.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    begun: u64,
    numbers: BTreeSet<u64>,
}

impl UnderWay {
    /// One more begins. Returns its number.
    pub fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.numbers.insert(self.begun);
        self.begun
    }

    pub fn end(&mut self, number: u64) {
        self.numbers.remove(&number);
    }

    /// The number of the last that began, whether it is under way or not; 0 if none did.
    pub fn last_begun(&self) -> u64 {
        self.begun
    }

    pub fn is_under_way(&self, number: u64) -> bool {
        self.numbers.contains(&number)
    }

    /// Whether all up to this one have ended.
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
    fn those_before_are_told_from_those_after() {
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
