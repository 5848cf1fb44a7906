//! A session with a ZooKeeper server that does what a test says, without any of the store's care: nodes of other clients,
//! and locks with a mistake, are made of it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const CREATE: i32 = 1;
const DELETE: i32 = 2;
const GET_DATA: i32 = 4;
const SET_DATA: i32 = 5;
const GET_CHILDREN: i32 = 8;
const PING: i32 = 11;
const CLOSE: i32 = -11;
const PING_XID: i32 = -2;

/// How a node is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Node {
    /// It stays.
    Persistent = 0,
    /// It goes with the session.
    Ephemeral = 1,
    /// The same, and a number is put behind its name.
    Sequential = 3,
}

/// What a node has besides its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeStat {
    /// The transaction that created it.
    pub czxid: i64,
    /// The session that it goes with, or 0.
    pub owner: i64,
}

/// A session. It is pinged until it is dropped, and ends with its time-out then, unless it is closed.
#[derive(Debug)]
pub struct ZooKeeperSession {
    wire: Arc<Mutex<Connection>>,
    /// Whether it is pinged no longer.
    ended: Arc<AtomicBool>,
    id: i64,
    timeout: Duration,
}

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    xid: i32,
}

/// What a server answered when it refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal(pub i32);

/// There is no such node.
pub const NO_NODE: Refusal = Refusal(-101);
/// There is such a node already.
pub const NODE_EXISTS: Refusal = Refusal(-110);
/// The connection ended.
pub const NO_CONNECTION: Refusal = Refusal(-4);

impl ZooKeeperSession {
    /// Opens a session with the server at a port of this machine.
    ///
    /// # Panics
    /// When there is none.
    pub fn open(port: u16, timeout: Duration) -> ZooKeeperSession {
        let mut hello = Vec::new();
        hello.extend(0i32.to_be_bytes());
        hello.extend(0i64.to_be_bytes());
        hello.extend((timeout.as_millis() as i32).to_be_bytes());
        hello.extend(0i64.to_be_bytes());
        text(&mut hello, &[0; 16]);
        hello.push(0);
        // A server that has lost its leader ends the connection until it has another.
        let end = Instant::now() + Duration::from_secs(60);
        let (stream, greeting) = loop {
            match greet(port, &hello) {
                Ok(greeted) => break greeted,
                Err(error) => assert!(Instant::now() < end, "it does not greet: {error}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let timeout = Duration::from_millis(int(&greeting, 4) as u64);
        let id = long(&greeting, 8);
        let connection = Connection { stream, xid: 0 };
        let wire = Arc::new(Mutex::new(connection));
        let ended = Arc::new(AtomicBool::new(false));
        let (pinged, is_over) = (Arc::downgrade(&wire), ended.clone());
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(timeout / 6);
                let Some(wire) = pinged.upgrade() else { return };
                let mut wire = wire.lock().unwrap_or_else(PoisonError::into_inner);
                if is_over.load(Ordering::Acquire) {
                    return;
                }
                if wire.ping().is_err() {
                    is_over.store(true, Ordering::Release);
                    return;
                }
            }
        });
        ZooKeeperSession {
            wire,
            ended,
            id,
            timeout,
        }
    }

    /// Its number.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// After this long without a word the servers end it.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    fn ask(&self, code: i32, body: &[u8]) -> Result<Vec<u8>, Refusal> {
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        wire.ask(code, body).unwrap_or_else(|_| {
            self.ended.store(true, Ordering::Release);
            Err(NO_CONNECTION)
        })
    }

    /// Creates a node, and answers its path.
    ///
    /// # Errors
    /// What the server refused with, as every verb.
    pub fn create(&self, path: &str, data: &[u8], node: Node) -> Result<String, Refusal> {
        let mut body = Vec::new();
        text(&mut body, path.as_bytes());
        text(&mut body, data);
        body.extend(1i32.to_be_bytes());
        body.extend(31i32.to_be_bytes());
        text(&mut body, b"world");
        text(&mut body, b"anyone");
        body.extend((node as i32).to_be_bytes());
        let answer = self.ask(CREATE, &body)?;
        Ok(read_text(&answer, &mut 0))
    }

    /// Creates a path and what it is below, and leaves what is there.
    ///
    /// # Panics
    /// When the server refuses.
    pub fn folders(&self, path: &str) {
        let ends = path.match_indices('/').map(|(at, _)| at).skip(1);
        for end in ends.chain([path.len()]) {
            match self.create(&path[..end], b"", Node::Persistent) {
                Ok(_) | Err(NODE_EXISTS) => {}
                Err(refusal) => panic!("{}: {refusal:?}", &path[..end]),
            }
        }
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// What the server refused with.
    pub fn delete(&self, path: &str) -> Result<(), Refusal> {
        let mut body = Vec::new();
        text(&mut body, path.as_bytes());
        body.extend((-1i32).to_be_bytes());
        self.ask(DELETE, &body).map(|_| ())
    }

    /// Changes the data of a node.
    ///
    /// # Errors
    /// What the server refused with.
    pub fn set_data(&self, path: &str, data: &[u8]) -> Result<(), Refusal> {
        let mut body = Vec::new();
        text(&mut body, path.as_bytes());
        text(&mut body, data);
        body.extend((-1i32).to_be_bytes());
        self.ask(SET_DATA, &body).map(|_| ())
    }

    /// What a node has.
    ///
    /// # Errors
    /// What the server refused with.
    pub fn data(&self, path: &str) -> Result<(Vec<u8>, NodeStat), Refusal> {
        let mut body = Vec::new();
        text(&mut body, path.as_bytes());
        body.push(0);
        let answer = self.ask(GET_DATA, &body)?;
        let length = int(&answer, 0).max(0) as usize;
        let stat = 4 + length;
        Ok((
            answer[4..stat].to_vec(),
            NodeStat {
                czxid: long(&answer, stat),
                owner: long(&answer, stat + 44),
            },
        ))
    }

    /// The children of a node, sorted; none if it is not there.
    ///
    /// # Panics
    /// When the server refuses otherwise.
    pub fn children(&self, path: &str) -> Vec<String> {
        let mut body = Vec::new();
        text(&mut body, path.as_bytes());
        body.push(0);
        let answer = match self.ask(GET_CHILDREN, &body) {
            Ok(answer) => answer,
            Err(NO_NODE) => return Vec::new(),
            Err(refusal) => panic!("{path}: {refusal:?}"),
        };
        let mut at = 4;
        let mut children: Vec<String> = (0..int(&answer, 0))
            .map(|_| read_text(&answer, &mut at))
            .collect();
        children.sort_unstable();
        children
    }

    /// Whether its pings have been answered so far.
    pub fn is_open(&self) -> bool {
        !self.ended.load(Ordering::Acquire)
    }

    /// Whether the server answers a ping.
    pub fn is_answered(&self) -> bool {
        let mut wire = self.wire.lock().unwrap_or_else(PoisonError::into_inner);
        wire.ping().is_ok()
    }

    /// Ends the session: its nodes go at once.
    pub fn close(&self) {
        let _ = self.ask(CLOSE, &[]);
        self.ended.store(true, Ordering::Release);
    }
}

fn greet(port: u16, hello: &[u8]) -> io::Result<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    send(&mut stream, hello)?;
    let greeting = receive(&mut stream)?;
    Ok((stream, greeting))
}

impl Drop for ZooKeeperSession {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl Connection {
    fn ping(&mut self) -> io::Result<()> {
        let mut packet = PING_XID.to_be_bytes().to_vec();
        packet.extend(PING.to_be_bytes());
        send(&mut self.stream, &packet)?;
        receive(&mut self.stream).map(|_| ())
    }

    fn ask(&mut self, code: i32, body: &[u8]) -> io::Result<Result<Vec<u8>, Refusal>> {
        self.xid += 1;
        let mut packet = self.xid.to_be_bytes().to_vec();
        packet.extend(code.to_be_bytes());
        packet.extend(body);
        send(&mut self.stream, &packet)?;
        let answer = receive(&mut self.stream)?;
        Ok(match int(&answer, 12) {
            0 => Ok(answer[16..].to_vec()),
            code => Err(Refusal(code)),
        })
    }
}

fn text(packet: &mut Vec<u8>, text: &[u8]) {
    packet.extend((text.len() as i32).to_be_bytes());
    packet.extend(text);
}

fn int(packet: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(packet[at..at + 4].try_into().expect("four bytes"))
}

fn long(packet: &[u8], at: usize) -> i64 {
    i64::from_be_bytes(packet[at..at + 8].try_into().expect("eight bytes"))
}

fn read_text(packet: &[u8], at: &mut usize) -> String {
    let start = *at + 4;
    *at = start + int(packet, *at).max(0) as usize;
    String::from_utf8_lossy(&packet[start..*at]).into_owned()
}

fn send(stream: &mut TcpStream, packet: &[u8]) -> io::Result<()> {
    let mut frame = (packet.len() as i32).to_be_bytes().to_vec();
    frame.extend(packet);
    stream.write_all(&frame)
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut packet = vec![0; i32::from_be_bytes(length) as usize];
    stream.read_exact(&mut packet)?;
    Ok(packet)
}
