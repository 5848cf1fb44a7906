//! Serving HTTP to all clients, also to those that come in masses, say nothing, or never listen.
//!
//! - A connection that sends no request for a while, or not all of it, is closed.
//! - So is one that does not read what it is sent: nothing is kept for it for ever.
//! - There are only so many at a time; more wait at the door, and need nothing of ours meanwhile.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// How long a connection may take until it has sent the head of a request, also the next one.
pub const SPEAKS_WITHIN: Duration = Duration::from_secs(20);
/// How long it may take to read something of what it was sent.
#[cfg(target_os = "linux")]
const READS_WITHIN: Duration = Duration::from_secs(30);
/// More than the longest head of a request that makes sense.
const MOST_HEAD: usize = 32 << 10;
/// How long to wait when no connection can be accepted, for instance as there are too many files.
const AGAIN: Duration = Duration::from_secs(1);

/// Serves until `stop` completes, then lets those who are in finish. Dropping it cuts them off.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    most: usize,
    stop: impl Future<Output = ()>,
) {
    let room = Arc::new(Semaphore::new(most));
    let (close, closing) = watch::channel(());
    let mut inside = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let next = async {
            let place = room.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        tokio::select! {
            () = &mut stop => break,
            Some(_) = inside.join_next() => {}
            (place, accepted) = next => match accepted {
                Ok((stream, _)) => {
                    let connection = connection(stream, router.clone(), closing.clone());
                    inside.spawn(async move {
                        connection.await;
                        drop(place);
                    });
                }
                Err(_) => tokio::time::sleep(AGAIN).await,
            },
        }
    }
    // A client that comes now is told at once that nobody is here.
    drop(listener);
    close.send_replace(());
    while inside.join_next().await.is_some() {}
}

async fn connection(stream: TcpStream, router: Router, mut closing: watch::Receiver<()>) {
    // Answers are small, and waited for.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = rustix::net::sockopt::set_tcp_user_timeout(
        &stream,
        u32::try_from(READS_WITHIN.as_millis()).unwrap_or(u32::MAX),
    );
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SPEAKS_WITHIN)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut serving = pin!(serving);
    tokio::select! {
        // What went wrong is the other side's business.
        _ = &mut serving => return,
        _ = closing.changed() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
