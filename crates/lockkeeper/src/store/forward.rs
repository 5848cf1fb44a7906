//! The macro [`forward!`](crate::forward), for a store over another store: a wrapper forwards the methods that it does not
//! change.

/// Forwards methods of [`Store`](crate::store::Store) to the store in a field, for a store over another one.
///
/// `facts` stands for all methods that are no verbs, except `capabilities`: a wrapper that adds waiting has to say there
/// that verbs do not end in time. With `#[deny(clippy::missing_trait_methods)]` on the implementation, no method keeps its
/// default by oversight.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use lockkeeper::store::{Answer, Attempt, Claim, Store};
///
/// /// Counts tries.
/// #[derive(Debug)]
/// struct Counted(Arc<dyn Store>, AtomicU64);
///
/// impl Store for Counted {
///     lockkeeper::forward!(0: capabilities facts);
///     lockkeeper::forward!(0: withdraw renew release subscribe inspect list break_lock latch);
///
///     fn try_acquire<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Attempt> {
///         self.1.fetch_add(1, Ordering::Relaxed);
///         self.0.try_acquire(claim)
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($field:tt: $($method:ident)+) => { $($crate::forward!(@$method $field);)+ };
    (@capabilities $field:tt) => {
        fn capabilities(&self) -> $crate::store::Capabilities {
            self.$field.capabilities()
        }
    };
    (@facts $field:tt) => {
        fn place(&self) -> ::std::string::String {
            self.$field.place()
        }
        fn check_name(
            &self,
            name: &$crate::Name,
        ) -> ::std::result::Result<(), $crate::Error> {
            self.$field.check_name(name)
        }
        fn health(&self) -> $crate::store::Health {
            self.$field.health()
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
        fn embedded(&self) -> ::std::option::Option<&dyn $crate::store::Embedded> {
            self.$field.embedded()
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
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use crate::store::memory::MemoryStore;
    use crate::store::{BoxFuture, Capabilities, ClaimId, Embedded, Health, KeeperId};
    use crate::store::{NodeState, NodeStatus, NodeVote, Store};
    use crate::{Error, Name};

    /// A store that returns no default.
    #[derive(Debug)]
    struct Odd(MemoryStore);

    impl Store for Odd {
        forward!(0: try_acquire withdraw renew release subscribe inspect list break_lock latch);
        fn capabilities(&self) -> Capabilities {
            let store = "odd";
            Capabilities {
                store,
                ..self.0.capabilities()
            }
        }
        fn place(&self) -> String {
            String::from("somewhere")
        }
        fn check_name(&self, name: &Name) -> Result<(), Error> {
            Err(Error::invalid_name(name.as_str()))
        }
        fn health(&self) -> Health {
            let (node, state) = (String::from("a"), NodeState::Behind);
            Health {
                ready_in: Duration::from_secs(3),
                nodes: vec![NodeStatus { node, state }],
            }
        }
        fn votes(&self, claim: ClaimId) -> Option<Vec<NodeVote>> {
            let (node, holds) = (claim.to_string(), true);
            Some(vec![NodeVote { node, holds }])
        }
        fn settled(&self) -> BoxFuture<'_, ()> {
            Box::pin(std::future::pending())
        }
        fn embedded(&self) -> Option<&dyn Embedded> {
            Some(self)
        }
    }

    impl Embedded for Odd {
        fn liveness(&self) -> Option<OwnedFd> {
            None
        }
        fn obstacle(&self) -> Option<String> {
            Some(String::from("a stone"))
        }
        fn at_rest(&self, then: &mut dyn FnMut()) {
            then();
        }
    }

    #[derive(Debug)]
    struct Wrapped(Odd);

    #[deny(clippy::missing_trait_methods)]
    impl Store for Wrapped {
        forward!(0: capabilities facts);
        forward!(0: try_acquire withdraw renew release subscribe inspect list break_lock latch);
    }

    #[test]
    fn a_wrapper_returns_what_its_store_does() {
        let (odd, wrapped) = (Odd(MemoryStore::new()), Wrapped(Odd(MemoryStore::new())));
        let claim = ClaimId {
            keeper: KeeperId::new(),
            number: 1,
        };
        assert_eq!(wrapped.capabilities(), odd.capabilities());
        assert_eq!(wrapped.place(), "somewhere");
        let name = Name::new("x").expect("a name");
        assert_eq!(wrapped.check_name(&name), odd.check_name(&name));
        assert!(wrapped.check_name(&name).is_err());
        assert_eq!(wrapped.health(), odd.health());
        assert_eq!(wrapped.votes(claim), odd.votes(claim));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(wrapped.settled().as_mut().poll(&mut context).is_pending());
        let embedded = wrapped.embedded().expect("it is");
        assert_eq!(embedded.obstacle(), odd.obstacle());
    }
}
