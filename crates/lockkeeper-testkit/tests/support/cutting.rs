//! A way to a server whose connections end after so many bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

const NEVER: i64 = i64::MAX;

/// How many bytes still pass, of requests (0) and of replies (1).
#[derive(Debug)]
pub struct Left([AtomicI64; 2]);

impl Left {
    pub fn cut(&self, way: usize, after: usize) {
        self.0[way].store(after as i64, SeqCst);
    }

    pub fn is_cut(&self, way: usize) -> bool {
        self.0[way].load(SeqCst) <= 0
    }

    pub fn heal(&self) {
        self.0.iter().for_each(|left| left.store(NEVER, SeqCst));
    }
}

/// A way to the server whose connections end once so many bytes have passed. Returns its port.
pub async fn way_to(server: u16) -> (u16, Arc<Left>) {
    let left = Arc::new(Left([AtomicI64::new(NEVER), AtomicI64::new(NEVER)]));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let shared = left.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else {
                continue;
            };
            for stream in [&client, &server] {
                stream.set_nodelay(true).expect("is told");
            }
            let left = shared.clone();
            tokio::spawn(async move {
                let (client_read, client_write) = client.into_split();
                let (server_read, server_write) = server.into_split();
                // The first that ends takes the other with it: the connection is closed.
                tokio::select! {
                    () = pass(client_read, server_write, &left.0[0]) => {}
                    () = pass(server_read, client_write, &left.0[1]) => {}
                }
            });
        }
    });
    (port, left)
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, left: &AtomicI64) {
    let mut buffer = [0; 4096];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        let before = match left.load(SeqCst) {
            NEVER => NEVER,
            _ => left.fetch_sub(read as i64, SeqCst),
        };
        let passes = usize::try_from(before).unwrap_or(0).min(read);
        if to.write_all(&buffer[..passes]).await.is_err() || passes < read || read == 0 {
            return;
        }
    }
}
