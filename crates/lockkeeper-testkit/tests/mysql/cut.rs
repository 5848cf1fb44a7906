//! A verb that is cut off: its connection ends after any number of bytes of its requests or of the answers.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use lockkeeper::clock::Moment;
use lockkeeper::store::mysql::MySqlStore;
use lockkeeper::store::{
    Attempt, BreakOutcome, Claim, ClaimId, KeeperId, LatchOp, LatchRequest, LockInfo, Mode,
    Release, Renewed, Store,
};
use lockkeeper::{Error, Name, Token};
use lockkeeper_testkit::servers::mariadb::{DATABASE, PASSWORD};

use crate::claims::{self, break_of, renewal_for, until};
use crate::common::{self, LEASE, PATIENT, granted, open, prefix, shared};
use crate::cutting::{Left, way_to};

/// From one place of a cut to the next, in requests and in answers. Primes, so that no field always ends there.
const FEW: [usize; 2] = [499, 127];
const MANY: [usize; 2] = [13, 3];

/// Two stores on tables of their own: one whose way can be cut, and one by which to see what is true.
struct Scene {
    steps: [usize; 2],
    left: Arc<Left>,
    /// The user of that way, and of no other.
    user: String,
    url: String,
    store: RefCell<Arc<MySqlStore>>,
    straight: MySqlStore,
    me: KeeperId,
    other: KeeperId,
    numbers: AtomicU64,
    /// How many verbs said that nobody knows.
    unknown: Cell<usize>,
}

/// One place of a cut.
struct Cut<'a> {
    left: &'a Left,
    way: usize,
    after: usize,
    /// Whether the verb went through before it.
    whole: Cell<bool>,
}

impl Cut<'_> {
    async fn during<T>(&self, verb: impl Future<Output = T>) -> T {
        self.left.cut(self.way, self.after);
        let outcome = verb.await;
        self.whole.set(!self.left.is_cut(self.way));
        self.left.heal();
        outcome
    }
}

/// Does something again and again, with the connection cut at another place each time, until it goes through.
async fn at_every_byte(steps: [usize; 2], verb: &str, case: impl AsyncFn(&Scene, &str, &Cut<'_>)) {
    let scene = Scene::open(steps).await;
    for way in [0, 1] {
        for round in 0.. {
            let name = format!("{verb} {way} {round}");
            let cut = Cut {
                left: &scene.left,
                way,
                after: round * steps[way],
                whole: Cell::new(true),
            };
            scene.begin().await;
            case(&scene, &name, &cut).await;
            scene
                .answers_by_its_own_answer(&format!("own {name}"))
                .await;
            if cut.whole.get() {
                // Longer than what is said: all has been cut.
                assert!(round > 0, "{verb}: {round}");
                break;
            }
        }
    }
    let changes = !["look", "connect"].contains(&verb);
    assert_eq!(scene.unknown.get() > 0, changes, "{verb} is in doubt");
}

impl Scene {
    async fn open(steps: [usize; 2]) -> Scene {
        let (server, prefix) = (shared(), prefix());
        let user = format!("cut_{prefix}");
        server.sql(&format!(
            "CREATE USER {user}@'%' IDENTIFIED BY '{PASSWORD}'; GRANT ALL ON {DATABASE}.* TO {user}@'%'"
        ));
        let (port, left) = way_to(server.port()).await;
        let options = format!("?prefix={prefix}&max_lease=10m{PATIENT}");
        let url = format!("{}{options}", server.url_of(&user, port));
        Scene {
            steps,
            left,
            store: RefCell::new(Arc::new(open(&url).await)),
            straight: open(&format!("{}{options}", server.url())).await,
            user,
            url,
            me: KeeperId::new(),
            other: KeeperId::new(),
            numbers: AtomicU64::new(1),
            unknown: Cell::new(0),
        }
    }

    fn id(&self, keeper: KeeperId) -> ClaimId {
        let number = self.numbers.fetch_add(1, SeqCst);
        ClaimId { keeper, number }
    }

    fn claim(&self, keeper: KeeperId, name: &str) -> Claim {
        let (id, name) = (self.id(keeper), Name::new(name).expect("a name"));
        Claim::new(id, name, Mode::Exclusive, LEASE).with_not_after(Moment::NEVER)
    }

    fn store(&self) -> Arc<MySqlStore> {
        self.store.borrow().clone()
    }

    /// Begins anew. A store that lost its connection again and again waits longer each time.
    async fn begin(&self) {
        let store = Arc::new(open(&self.url).await);
        self.store.replace(store);
        // The keeper says who it is.
        self.answers_by_its_own_answer("first").await;
    }

    /// Waits until the server has done what came to it by connections that were cut.
    async fn settled(&self) {
        until("it connects again", async || {
            self.store().list("none").await.is_ok()
        })
        .await;
        let connections = format!(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{}'",
            self.user
        );
        until("there is one connection", async || {
            shared().sql(&connections) == "1"
        })
        .await;
    }

    /// What became of a verb that was cut, and what is true then. Nobody knows before.
    async fn after<T>(&self, outcome: Result<T, Error>) -> Result<T, Option<Error>> {
        if outcome.is_err() {
            self.settled().await;
        }
        outcome.map_err(|error| match error {
            Error::OutcomeUnknown { .. } => {
                self.unknown.set(self.unknown.get() + 1);
                None
            }
            error => Some(error),
        })
    }

    async fn truth(&self, claim: &Claim) -> LockInfo {
        let info = self.straight.inspect(&claim.name).await.expect("looks");
        info.unwrap_or_else(|| LockInfo::new(claim.name.clone()))
    }

    async fn holds(&self, claim: &Claim) -> Option<Token> {
        let info = self.truth(claim).await;
        let mut holders = info.holders.iter();
        let held = holders.find(|holder| holder.claim == claim.id);
        held.and_then(|holder| holder.token)
    }

    /// A verb that comes next, on the same connection if that is still there.
    async fn answers_by_its_own_answer(&self, name: &str) {
        let mine = self.claim(self.me, name);
        let mut token = None;
        until("it grants", async || {
            if let Ok(attempt) = self.store().try_acquire(&mine).await {
                let Attempt::Granted(grant) = attempt else {
                    panic!("{name}: {attempt:?}");
                };
                token = Some(grant.token);
            }
            token.is_some()
        })
        .await;
        assert_eq!(token, self.holds(&mine).await, "{name}");
        until("it is let go of", async || {
            claims::release(&*self.store(), &mine).await.is_ok()
        })
        .await;
    }

    async fn withdrawn(&self, claim: &Claim) {
        until("it is taken back", async || {
            self.store().withdraw(&claim.name, claim.id).await.is_ok()
        })
        .await;
    }

    async fn released(&self, claim: &Claim) {
        until("it is let go of", async || {
            claims::release(&*self.store(), claim).await.is_ok()
        })
        .await;
    }

    /// Nobody holds or waits: another is granted at once, with a token above those before.
    async fn is_free(&self, name: &str, before: Option<Token>) {
        let last = self.claim(self.other, name);
        let grant = granted(&self.straight, &last).await;
        assert!(Some(grant.token) > before, "{name}: {before:?}, {grant:?}");
        assert_eq!(
            claims::release(&self.straight, &last).await,
            Ok(true),
            "{name}"
        );
    }

    async fn acquire(&self, name: &str, cut: &Cut<'_>) {
        let mine = self.claim(self.me, name);
        let outcome = cut.during(self.store().try_acquire(&mine)).await;
        let outcome = self.after(outcome).await;
        let held = self.holds(&mine).await;
        match outcome {
            Ok(Attempt::Granted(grant)) => assert_eq!(Some(grant.token), held, "{name}"),
            Ok(attempt) => panic!("{name}: {attempt:?}"),
            Err(None) => {}
            Err(Some(error)) => assert_eq!(held, None, "{name}: {error}"),
        }
        self.withdrawn(&mine).await;
        self.is_free(name, held).await;
    }

    async fn wait(&self, name: &str, cut: &Cut<'_>) {
        let theirs = self.claim(self.other, name);
        let before = granted(&self.straight, &theirs).await.token;
        let mine = self.claim(self.me, name).with_enqueue(true);
        let outcome = cut.during(self.store().try_acquire(&mine)).await;
        match self.after(outcome).await {
            Ok(Attempt::Busy { .. }) => {
                assert_eq!(self.truth(&mine).await.waiters, 1, "{name}");
            }
            Ok(attempt) => panic!("{name}: {attempt:?}"),
            Err(None) => {}
            Err(Some(error)) => assert_eq!(self.truth(&mine).await.waiters, 0, "{name}: {error}"),
        }
        self.withdrawn(&mine).await;
        assert_eq!(
            claims::release(&self.straight, &theirs).await,
            Ok(true),
            "{name}"
        );
        self.is_free(name, Some(before)).await;
    }

    async fn withdraw(&self, name: &str, cut: &Cut<'_>) {
        let theirs = self.claim(self.other, name);
        let before = granted(&self.straight, &theirs).await.token;
        let mine = self.claim(self.me, name).with_enqueue(true);
        let attempt = self.store().try_acquire(&mine).await;
        assert!(matches!(attempt, Ok(Attempt::Busy { .. })), "{attempt:?}");
        let outcome = cut.during(self.store().withdraw(&mine.name, mine.id)).await;
        if self.after(outcome).await.is_ok() {
            assert_eq!(self.truth(&mine).await.waiters, 0, "{name}");
        }
        self.withdrawn(&mine).await;
        assert_eq!(
            claims::release(&self.straight, &theirs).await,
            Ok(true),
            "{name}"
        );
        self.is_free(name, Some(before)).await;
    }

    async fn renew(&self, name: &str, cut: &Cut<'_>) {
        let mine = self.claim(self.me, name);
        let token = granted(&self.store(), &mine).await.token;
        let longer = [renewal_for(2 * LEASE, &mine)];
        let outcome = cut.during(self.store().renew(&longer)).await;
        let outcome = self.after(outcome).await;
        let truth = self.truth(&mine).await;
        let lease = truth.holders.first().and_then(|holder| holder.lease);
        match outcome {
            Ok(said) if said == [Renewed::Renewed] => {
                assert_eq!(lease, Some(2 * LEASE), "{name}");
            }
            Ok(said) => assert_eq!(said, [Renewed::Unknown], "{name}"),
            Err(None) => {}
            Err(Some(error)) => assert_eq!(lease, Some(LEASE), "{name}: {error}"),
        }
        assert_eq!(self.holds(&mine).await, Some(token), "{name}");
        self.released(&mine).await;
        self.is_free(name, Some(token)).await;
    }

    async fn release(&self, name: &str, cut: &Cut<'_>) {
        let mine = self.claim(self.me, name);
        let token = granted(&self.store(), &mine).await.token;
        self.let_go(&mine, cut).await;
        self.is_free(name, Some(token)).await;
    }

    async fn let_go(&self, mine: &Claim, cut: &Cut<'_>) {
        let release = Release::new(mine.name.clone(), mine.id);
        let outcome = cut.during(self.store().release(&release)).await;
        let outcome = self.after(outcome).await;
        let held = self.holds(mine).await.is_some();
        match outcome {
            Ok(done) => assert!(done.was_held && !held, "{}: {done:?}", mine.name),
            Err(None) => {}
            Err(Some(error)) => assert!(held, "{}: {error}", mine.name),
        }
        self.released(mine).await;
    }

    async fn hand_on(&self, name: &str, cut: &Cut<'_>) {
        let mine = self.claim(self.me, name);
        let before = granted(&self.store(), &mine).await.token;
        let theirs = self.claim(self.other, name).with_enqueue(true);
        let attempt = self.straight.try_acquire(&theirs).await;
        assert!(matches!(attempt, Ok(Attempt::Busy { .. })), "{attempt:?}");
        self.let_go(&mine, cut).await;
        let token = granted(&self.straight, &theirs).await.token;
        assert!(token > before, "{name}: {token} after {before}");
        assert_eq!(
            claims::release(&self.straight, &theirs).await,
            Ok(true),
            "{name}"
        );
        self.is_free(name, Some(token)).await;
    }

    async fn break_it(&self, name: &str, cut: &Cut<'_>) {
        let theirs = self.claim(self.other, name);
        let token = granted(&self.straight, &theirs).await.token;
        let request = break_of(&theirs);
        let outcome = cut.during(self.store().break_lock(&request)).await;
        let outcome = self.after(outcome).await;
        let held = self.holds(&theirs).await.is_some();
        match outcome {
            Ok(BreakOutcome::Ended(ended)) => {
                let ended: Vec<ClaimId> = ended.iter().map(|holder| holder.claim).collect();
                assert!(ended == [theirs.id] && !held, "{name}: {ended:?}");
            }
            Ok(outcome) => panic!("{name}: {outcome:?}"),
            Err(None) => {}
            Err(Some(error)) => assert!(held, "{name}: {error}"),
        }
        until("it is broken", async || {
            self.store().break_lock(&break_of(&theirs)).await.is_ok()
        })
        .await;
        self.is_free(name, Some(token)).await;
    }

    async fn look(&self, name: &str, cut: &Cut<'_>) {
        let theirs = self.claim(self.other, name);
        let token = granted(&self.straight, &theirs).await.token;
        // Both are one answer each: in turn, so that each is cut alone.
        let store = self.store();
        let outcome = match cut.after / self.steps[cut.way] % 2 {
            0 => {
                let inspect = store.inspect(&theirs.name);
                cut.during(inspect)
                    .await
                    .map(|info| info.into_iter().collect())
            }
            _ => cut.during(store.list(name)).await,
        };
        match self.after(outcome).await {
            Ok(infos) => {
                let holders = infos.iter().flat_map(|info| &info.holders);
                let held: Vec<Token> = holders.filter_map(|holder| holder.token).collect();
                assert_eq!(held, [token], "{name}");
            }
            // What only reads is never in doubt.
            Err(error) => assert!(error.is_some(), "{name}"),
        }
        assert_eq!(
            claims::release(&self.straight, &theirs).await,
            Ok(true),
            "{name}"
        );
    }

    fn latch_request(&self, name: &str, op: LatchOp) -> LatchRequest {
        let (name, id) = (Name::new(name).expect("a name"), self.id(self.me));
        LatchRequest::new(name, id, op, Moment::NEVER)
    }

    async fn latch(&self, name: &str, cut: &Cut<'_>, ops: &[LatchOp], count: u32) {
        let (last, before) = ops.split_last().expect("one is cut");
        for op in before {
            let request = self.latch_request(name, *op);
            assert!(self.straight.latch(&request).await.is_ok(), "{name}");
        }
        let request = self.latch_request(name, *last);
        let read = self.latch_request(name, LatchOp::Read);
        let count_now = async || self.straight.latch(&read).await.map(|state| state.count);
        let untouched = count_now().await;
        let outcome = cut.during(self.store().latch(&request)).await;
        match self.after(outcome).await {
            Ok(state) => assert!(state.changed && state.count == count, "{name}: {state:?}"),
            Err(None) => {}
            Err(Some(error)) => assert_eq!(count_now().await, untouched, "{name}: {error}"),
        }
        // Again, it counts once.
        until("it is asked again", async || {
            self.store().latch(&request).await.is_ok()
        })
        .await;
        assert_eq!(count_now().await, Ok(count), "{name}");
    }

    /// Whatever a client was told when it began, the next one begins as ever, and so does the one that goes on.
    async fn connect(&self, name: &str, cut: &Cut<'_>) {
        let opened = cut.during(common::connect(&self.url)).await;
        if let Ok(store) = opened {
            let mine = self.claim(self.other, name);
            until("it grants", async || {
                matches!(store.try_acquire(&mine).await, Ok(Attempt::Granted(_)))
            })
            .await;
        }
        let store = open(&self.url).await;
        let mine = self.claim(self.other, &format!("{name} again"));
        granted(&store, &mine).await;
    }

    async fn set(&self, name: &str, cut: &Cut<'_>) {
        self.latch(name, cut, &[LatchOp::Set(3)], 3).await;
    }

    async fn count_down(&self, name: &str, cut: &Cut<'_>) {
        let ops = [LatchOp::Set(3), LatchOp::CountDown];
        self.latch(name, cut, &ops, 2).await;
    }
}

/// A verb that fails changed nothing, unless it says that nobody knows. No answer is taken for another.
macro_rules! cut_within {
    ($($verb:ident),* $(,)?) => {
        $(
            #[tokio::test]
            async fn $verb() {
                let verb = stringify!($verb);
                at_every_byte(FEW, verb, async |scene, name, cut| scene.$verb(name, cut).await).await;
            }
        )*
        mod at_many_bytes {
            use super::{MANY, at_every_byte};
            $(
                #[tokio::test]
                #[ignore = "takes minutes: `cargo xtask nightly` runs it"]
                async fn $verb() {
                    let verb = stringify!($verb);
                    at_every_byte(MANY, verb, async |scene, name, cut| scene.$verb(name, cut).await).await;
                }
            )*
        }
    };
}

cut_within!(
    acquire, wait, withdraw, renew, release, hand_on, break_it, look, set, count_down, connect,
);

/// What nobody takes back ends with its lease.
#[tokio::test]
async fn what_was_granted_to_nobody_ends_with_its_lease() {
    const SHORT: Duration = Duration::from_secs(2);
    let scene = Scene::open(FEW).await;
    let mut left = Vec::new();
    for way in [0, 1] {
        for round in 0.. {
            let name = format!("{way} {round}");
            let mut mine = scene.claim(scene.me, &name);
            mine.lease = SHORT;
            scene.begin().await;
            scene.left.cut(way, round * FEW[way]);
            let outcome = scene.store().try_acquire(&mine).await;
            let whole = !scene.left.is_cut(way);
            scene.left.heal();
            scene.settled().await;
            let truth = scene.truth(&mine).await;
            for holder in &truth.holders {
                assert!(holder.remaining <= Some(SHORT), "{name}: {truth:?}");
            }
            if outcome.is_err() {
                left.push((name, truth.last_token.filter(|_| !truth.holders.is_empty())));
            }
            if whole {
                break;
            }
        }
    }
    let held = left.iter().filter(|(_, token)| token.is_some()).count();
    assert!(held > 0, "nothing was left behind: {left:?}");
    tokio::time::sleep(SHORT).await;
    for (name, token) in left {
        scene.is_free(&name, token).await;
    }
}
