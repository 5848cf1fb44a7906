//! Stores over stores: what a wrapper does not change, it passes on.

/// Passes methods of [`Store`](super::Store) on to the store in a field: `forward!(inner: facts withdraw latch);`.
/// `facts` are all that are no verbs, but for `ends_in_time`, which a wrapper that adds waiting must answer itself.
///
/// With `#[deny(clippy::missing_trait_methods)]` on the implementation, none is left to its default by oversight.
#[doc(hidden)]
#[macro_export]
macro_rules! forward {
    ($field:tt: $($method:ident)+) => { $($crate::forward!(@$method $field);)+ };
    (@facts $field:tt) => {
        fn capabilities(&self) -> $crate::store::Capabilities {
            self.$field.capabilities()
        }
        fn place(&self) -> ::std::string::String {
            self.$field.place()
        }
        fn longest_lease(&self) -> ::std::time::Duration {
            self.$field.longest_lease()
        }
        fn check_lease(
            &self,
            lease: ::std::time::Duration,
        ) -> ::std::result::Result<(), $crate::Error> {
            self.$field.check_lease(lease)
        }
        fn ready_in(&self) -> ::std::time::Duration {
            self.$field.ready_in()
        }
        fn nodes(&self) -> ::std::vec::Vec<$crate::store::NodeStatus> {
            self.$field.nodes()
        }
        fn votes(
            &self,
            claim: $crate::store::ClaimId,
        ) -> ::std::option::Option<::std::vec::Vec<$crate::store::NodeVote>> {
            self.$field.votes(claim)
        }
        fn settled(&self) -> $crate::store::BoxFuture<'_, ()> {
            self.$field.settled()
        }
        fn liveness(&self) -> ::std::option::Option<::std::os::fd::OwnedFd> {
            self.$field.liveness()
        }
        fn obstacle(&self) -> ::std::option::Option<::std::string::String> {
            self.$field.obstacle()
        }
        fn at_rest(&self, then: &mut dyn ::std::ops::FnMut()) {
            self.$field.at_rest(then);
        }
    };
    (@ends_in_time $field:tt) => {
        fn ends_in_time(&self) -> bool {
            self.$field.ends_in_time()
        }
    };
    (@try_acquire $field:tt) => {
        fn try_acquire<'a>(
            &'a self,
            claim: &'a $crate::store::Claim,
        ) -> $crate::store::Answer<'a, $crate::store::Attempt> {
            self.$field.try_acquire(claim)
        }
    };
    (@withdraw $field:tt) => {
        fn withdraw<'a>(
            &'a self,
            name: &'a $crate::Name,
            claim: $crate::store::ClaimId,
        ) -> $crate::store::Answer<'a, ()> {
            self.$field.withdraw(name, claim)
        }
    };
    (@renew $field:tt) => {
        fn renew<'a>(
            &'a self,
            renewals: &'a [$crate::store::Renewal],
        ) -> $crate::store::Answer<'a, ::std::vec::Vec<$crate::store::Renewed>> {
            self.$field.renew(renewals)
        }
    };
    (@release $field:tt) => {
        fn release<'a>(
            &'a self,
            release: &'a $crate::store::Release,
        ) -> $crate::store::Answer<'a, $crate::store::Released> {
            self.$field.release(release)
        }
    };
    (@subscribe $field:tt) => {
        fn subscribe<'a>(
            &'a self,
            interest: $crate::store::Interest,
        ) -> $crate::store::Answer<'a, $crate::store::Subscription> {
            self.$field.subscribe(interest)
        }
    };
    (@inspect $field:tt) => {
        fn inspect<'a>(
            &'a self,
            name: &'a $crate::Name,
        ) -> $crate::store::Answer<'a, ::std::option::Option<$crate::store::LockInfo>> {
            self.$field.inspect(name)
        }
    };
    (@list $field:tt) => {
        fn list<'a>(
            &'a self,
            prefix: &'a str,
        ) -> $crate::store::Answer<'a, ::std::vec::Vec<$crate::store::LockInfo>> {
            self.$field.list(prefix)
        }
    };
    (@break_lock $field:tt) => {
        fn break_lock<'a>(
            &'a self,
            request: &'a $crate::store::Break,
        ) -> $crate::store::Answer<'a, $crate::store::BreakOutcome> {
            self.$field.break_lock(request)
        }
    };
    (@latch $field:tt) => {
        fn latch<'a>(
            &'a self,
            request: &'a $crate::store::LatchRequest,
        ) -> $crate::store::Answer<'a, $crate::store::LatchState> {
            self.$field.latch(request)
        }
    };
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use crate::Error;
    use crate::store::memory::MemoryStore;
    use crate::store::{ClaimId, KeeperId, NodeState, NodeStatus, NodeVote, Store};

    /// Answers what no default does.
    #[derive(Debug)]
    struct Odd(MemoryStore);

    impl Store for Odd {
        forward!(0: try_acquire withdraw renew release subscribe inspect list break_lock latch);
        fn capabilities(&self) -> crate::store::Capabilities {
            let store = "odd";
            crate::store::Capabilities {
                store,
                ..self.0.capabilities()
            }
        }
        fn ends_in_time(&self) -> bool {
            true
        }
        fn place(&self) -> String {
            String::from("somewhere")
        }
        fn longest_lease(&self) -> Duration {
            Duration::from_secs(7)
        }
        fn check_lease(&self, _: Duration) -> Result<(), Error> {
            Err(Error::Closed)
        }
        fn ready_in(&self) -> Duration {
            Duration::from_secs(3)
        }
        fn nodes(&self) -> Vec<NodeStatus> {
            let (node, state) = (String::from("a"), NodeState::Behind);
            vec![NodeStatus { node, state }]
        }
        fn votes(&self, claim: ClaimId) -> Option<Vec<NodeVote>> {
            let (node, holds) = (claim.to_string(), true);
            Some(vec![NodeVote { node, holds }])
        }
        fn liveness(&self) -> Option<OwnedFd> {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            std::io::Write::write_all(&mut &writer, b"alive").expect("room in it");
            Some(reader.into())
        }
        fn obstacle(&self) -> Option<String> {
            Some(String::from("a stone"))
        }
        fn at_rest(&self, then: &mut dyn FnMut()) {
            then();
            then();
        }
    }

    #[derive(Debug)]
    struct Wrapped(Odd);

    #[deny(clippy::missing_trait_methods)]
    impl Store for Wrapped {
        forward!(0: facts ends_in_time);
        forward!(0: try_acquire withdraw renew release subscribe inspect list break_lock latch);
    }

    #[test]
    fn what_a_wrapper_forwards_is_what_its_store_says() {
        let (odd, wrapped) = (Odd(MemoryStore::new()), Wrapped(Odd(MemoryStore::new())));
        let claim = ClaimId {
            keeper: KeeperId::new(),
            number: 1,
        };
        assert_eq!(wrapped.capabilities(), odd.capabilities());
        assert!(wrapped.ends_in_time());
        assert_eq!(wrapped.place(), "somewhere");
        assert_eq!(wrapped.longest_lease(), odd.longest_lease());
        let checked = wrapped.check_lease(Duration::from_secs(1));
        assert!(matches!(checked, Err(Error::Closed)), "{checked:?}");
        assert_eq!(wrapped.ready_in(), odd.ready_in());
        assert_eq!(wrapped.nodes(), odd.nodes());
        assert_eq!(wrapped.votes(claim), odd.votes(claim));
        let mut said = String::new();
        let liveness = wrapped.liveness().expect("it has one");
        let read = std::fs::File::from(liveness).read_to_string(&mut said);
        assert_eq!((read.expect("it reads"), &*said), (5, "alive"));
        assert_eq!(wrapped.obstacle(), odd.obstacle());
        let mut calls = 0;
        wrapped.at_rest(&mut || calls += 1);
        assert_eq!(calls, 2);
    }
}
