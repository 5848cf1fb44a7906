//! A way to a server that can be made slow, silent or lossy while clients use it.
//!
//! It knows nothing of the protocol except that a request can be told by a text in it.

mod pumps;

use std::net;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::{broadcast, watch};

/// How one direction treats what passes through it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Way {
    /// It passes.
    #[default]
    Open,
    /// It passes after this time.
    Slow(Duration),
    /// It is kept until the way is open again, even if its sender is gone by then.
    Held,
    /// The same, and so is the end of a connection: the other side does not see that its sender is gone.
    Frozen,
    /// It is thrown away. The sender does not notice.
    Dropped,
}

/// A proxy on a port of its own. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    /// How long a connection waits for a target that does not listen yet.
    patience: Duration,
    rules: watch::Sender<Rules>,
    injected: broadcast::Sender<Arc<[u8]>>,
    told: broadcast::Sender<Arc<[u8]>>,
    trigger: Mutex<Option<Trigger>>,
    /// What stands in requests, and what passes instead.
    rewrites: Mutex<Option<[Vec<u8>; 2]>>,
    refuses: AtomicBool,
    lost: AtomicUsize,
    stopped: AtomicUsize,
    open: AtomicUsize,
    heard: AtomicUsize,
}

#[derive(Clone, Copy, Default, Debug)]
struct Rules {
    requests: Way,
    replies: Way,
    /// Connections of an earlier generation are cut.
    generation: u64,
    /// How often everything was let through again.
    healed: u64,
    ended: bool,
}

/// What happens when a request with this text passes.
#[derive(Debug)]
struct Trigger {
    text: Vec<u8>,
    left: usize,
    then: Then,
}

impl Trigger {
    fn new(text: &str, left: usize, then: Then) -> Trigger {
        Trigger {
            text: text.as_bytes().to_vec(),
            left,
            then,
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
enum Then {
    LoseReply,
    Hold,
    HoldReplies,
    Answer(Arc<[u8]>),
    Replace(Arc<[u8]>),
}

impl Proxy {
    /// A proxy in front of a port of this machine.
    ///
    /// # Panics
    /// When there is no port or no thread for it.
    pub fn to(port: u16) -> Proxy {
        Proxy::to_one_that_comes(port, Duration::ZERO)
    }

    /// A proxy in front of a port at which nobody may listen yet: a connection waits for it so long, before it is closed.
    ///
    /// # Panics
    /// When there is no port or no thread for it.
    pub fn to_one_that_comes(port: u16, patience: Duration) -> Proxy {
        let shared = Arc::new(Shared {
            target: AtomicU16::new(port),
            patience,
            rules: watch::Sender::new(Rules::default()),
            injected: broadcast::Sender::new(16),
            told: broadcast::Sender::new(16),
            trigger: Mutex::new(None),
            rewrites: Mutex::new(None),
            refuses: AtomicBool::new(false),
            lost: AtomicUsize::new(0),
            stopped: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            heard: AtomicUsize::new(0),
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let listener = super::ports::free_listener();
        listener.set_nonblocking(true).expect("it can be polled");
        let port = listener.local_addr().expect("an address").port();
        let serving = shared.clone();
        // A thread of its own: it works for tests with and without a runtime.
        std::thread::spawn(move || runtime.block_on(serving.serve(listener)));
        Proxy { port, shared }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends new connections elsewhere, as a fail-over does.
    pub fn point_to(&self, port: u16) {
        self.shared.target.store(port, SeqCst);
    }

    /// Writes another text of the same length wherever one stands in a request.
    ///
    /// # Panics
    /// When they are not of one length.
    pub fn rewrite(&self, from: &str, to: &str) {
        assert_eq!(from.len(), to.len(), "{from} {to}");
        let texts = [from, to].map(|text| text.as_bytes().to_vec());
        *self.shared.rewrites() = Some(texts);
    }

    /// Treats requests like this from now on.
    pub fn requests(&self, way: Way) {
        let rules = &self.shared.rules;
        rules.send_modify(|rules| rules.requests = way);
    }

    /// Treats replies like this from now on.
    pub fn replies(&self, way: Way) {
        let rules = &self.shared.rules;
        rules.send_modify(|rules| rules.replies = way);
    }

    /// Keeps connections open, also new ones, and says nothing on them in either direction.
    pub fn black_hole(&self) {
        self.requests(Way::Dropped);
        self.replies(Way::Dropped);
    }

    /// Closes every connection.
    pub fn cut(&self) {
        let rules = &self.shared.rules;
        rules.send_modify(|rules| rules.generation += 1);
    }

    /// Closes every connection, and every new one at once.
    pub fn refuse(&self) {
        self.shared.refuses.store(true, SeqCst);
        self.cut();
    }

    /// Lets everything through again; what was held goes on its way.
    pub fn heal(&self) {
        self.shared.refuses.store(false, SeqCst);
        // Until all is open: what passes meanwhile holds nothing afterwards.
        let mut armed = self.shared.trigger();
        *armed = None;
        self.shared.rules.send_modify(|rules| {
            rules.requests = Way::Open;
            rules.replies = Way::Open;
            rules.healed += 1;
        });
    }

    /// Forwards the next `count` requests that have `text` in them, and closes their connections once the
    /// server has done what they ask, without a reply.
    pub fn lose_replies(&self, text: &str, count: usize) {
        self.arm(text, count, Then::LoseReply);
    }

    /// Forwards `count` more requests that have `text` in them, and holds the next such one, and whatever follows
    /// on its connection, until [`Proxy::heal`]. Other connections go on.
    pub fn hold_after(&self, text: &str, count: usize) {
        self.arm(text, count + 1, Then::Hold);
    }

    /// Forwards the next request that has `text` in it, and holds every reply from then on until [`Proxy::heal`]; those before
    /// it pass.
    pub fn hold_replies_to(&self, text: &str) {
        let mut armed = self.shared.trigger();
        *armed = Some(Trigger::new(text, 1, Then::HoldReplies));
        // While no request can find it armed.
        self.replies(Way::Open);
    }

    /// Keeps the next `count` requests that have `text` in them from the server, and replies with this instead.
    pub fn answer(&self, text: &str, count: usize, reply: &str) {
        self.arm(text, count, Then::Answer(reply.as_bytes().into()));
    }

    /// Forwards the next request that has `text` in it, and replaces what the server says next by this.
    pub fn replace_reply(&self, text: &str, reply: &[u8]) {
        self.arm(text, 1, Then::Replace(reply.into()));
    }

    /// Sends this to the server on every connection, between two requests of the client, which does not see the reply.
    pub fn tell_server(&self, bytes: &[u8]) {
        let _ = self.shared.told.send(bytes.into());
    }

    /// How many replies the server has given to [`Proxy::tell_server`].
    pub fn heard(&self) -> usize {
        self.shared.heard.load(SeqCst)
    }

    /// Sends this to the client of every connection, between two replies of the server.
    pub fn inject(&self, bytes: &str) {
        let _ = self.shared.injected.send(bytes.as_bytes().into());
    }

    fn arm(&self, text: &str, left: usize, then: Then) {
        *self.shared.trigger() = Some(Trigger::new(text, left, then));
    }

    /// Whether what was waited for has passed.
    pub fn has_passed(&self) -> bool {
        self.shared.trigger().is_none()
    }

    /// How many replies were lost on purpose.
    pub fn lost_replies(&self) -> usize {
        self.shared.lost.load(SeqCst)
    }

    /// How many times something was held or dropped: whether the fault bit.
    pub fn stopped(&self) -> usize {
        self.shared.stopped.load(SeqCst)
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.shared.open.load(SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let rules = &self.shared.rules;
        rules.send_modify(|rules| rules.ended = true);
    }
}

impl Shared {
    fn trigger(&self) -> MutexGuard<'_, Option<Trigger>> {
        self.trigger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self: Arc<Self>, listener: net::TcpListener) {
        let listener = TcpListener::from_std(listener).expect("it can be polled");
        let mut rules = self.rules.subscribe();
        loop {
            let client = tokio::select! {
                _ = rules.wait_for(|rules| rules.ended) => return,
                client = listener.accept() => client,
            };
            // Before the look at `refuses`: a refusal is set first, and then connections are cut.
            let generation = self.rules.borrow().generation;
            match client {
                Ok((client, _)) if !self.refuses.load(SeqCst) => {
                    let shared = self.clone();
                    tokio::spawn(async move {
                        shared.open.fetch_add(1, SeqCst);
                        let mut rules = shared.rules.subscribe();
                        tokio::select! {
                            // First: what a cut connection holds is lost, even if all is healed by now.
                            biased;
                            _ = rules.wait_for(|r| r.ended || r.generation > generation) => {}
                            _ = shared.connect(client) => {}
                        }
                        shared.open.fetch_sub(1, SeqCst);
                    });
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use super::*;

    /// A server that answers each byte with the next one, and a proxy in front of it.
    fn echo() -> (Proxy, net::TcpStream) {
        let listener = net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Proxy::to(listener.local_addr().expect("an address").port());
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || {
                    let mut byte = [0];
                    while stream.read_exact(&mut byte).is_ok() {
                        let _ = stream.write_all(&[byte[0] + 1]);
                    }
                });
            }
        });
        let client = connect(&proxy);
        (proxy, client)
    }

    fn connect(proxy: &Proxy) -> net::TcpStream {
        let client = net::TcpStream::connect(("127.0.0.1", proxy.port())).expect("connects");
        let wait = Some(Duration::from_millis(300));
        client.set_read_timeout(wait).expect("a timeout");
        client
    }

    fn ask(client: &mut net::TcpStream, byte: u8) -> io::Result<u8> {
        client.write_all(&[byte])?;
        answer(client)
    }

    fn answer(client: &mut net::TcpStream) -> io::Result<u8> {
        let mut byte = [0];
        client.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    #[test]
    fn what_is_held_comes_later_and_what_is_dropped_never() {
        let (proxy, mut client) = echo();
        assert_eq!(ask(&mut client, b'a').expect("passes"), b'b');
        proxy.replies(Way::Held);
        assert!(ask(&mut client, b'c').is_err());
        proxy.heal();
        assert_eq!(answer(&mut client).expect("comes"), b'd');
        proxy.black_hole();
        assert!(ask(&mut client, b'e').is_err());
        proxy.heal();
        assert_eq!(ask(&mut client, b'g').expect("passes"), b'h');
        assert_eq!(proxy.stopped(), 2);
        proxy.hold_after("i", 1);
        assert_eq!(ask(&mut client, b'i').expect("passes"), b'j');
        assert_eq!(ask(&mut client, b'a').expect("passes"), b'b');
        assert!(ask(&mut client, b'i').is_err());
        assert!(ask(&mut connect(&proxy), b'i').is_ok());
        proxy.heal();
        assert_eq!(answer(&mut client).expect("comes"), b'j');
        proxy.hold_replies_to("k");
        assert_eq!(ask(&mut client, b'a').expect("passes"), b'b');
        assert!(ask(&mut client, b'k').is_err());
        assert!(ask(&mut connect(&proxy), b'a').is_err());
        proxy.heal();
        assert_eq!(answer(&mut client).expect("comes"), b'l');
    }

    /// Nothing was said on the connection before it ended.
    #[test]
    fn the_end_of_a_connection_passes_unless_it_is_frozen() {
        let listener = net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Proxy::to(listener.local_addr().expect("an address").port());
        for way in [Way::Held, Way::Frozen] {
            let client = connect(&proxy);
            let (mut server, _) = listener.accept().expect("a connection");
            let wait = Some(Duration::from_millis(300));
            server.set_read_timeout(wait).expect("a timeout");
            proxy.requests(way);
            drop(client);
            let seen = server.read(&mut [0]).is_ok();
            assert_eq!(seen, way == Way::Held, "{way:?}");
            proxy.heal();
            server.set_read_timeout(None).expect("no timeout");
            assert_eq!(server.read(&mut [0]).expect("the end"), 0);
        }
    }

    #[test]
    fn a_lost_reply_ends_the_connection_and_a_cut_all() {
        let (proxy, mut client) = echo();
        proxy.lose_replies("x", 1);
        assert_eq!(ask(&mut client, b'a').expect("passes"), b'b');
        let error = ask(&mut client, b'x').expect_err("lost");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(proxy.lost_replies(), 1);
        let mut client = connect(&proxy);
        assert_eq!(ask(&mut client, b'x').expect("passes"), b'y');
        proxy.refuse();
        assert!(ask(&mut client, b'a').is_err());
        assert!(ask(&mut connect(&proxy), b'a').is_err());
        proxy.heal();
        assert!(ask(&mut connect(&proxy), b'a').is_ok());
    }
}
