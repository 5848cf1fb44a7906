//! A service that sells, with axum: `cargo run -p lockkeeper --example axum`.
//!
//! Each request locks the item that it sells, and waits for it two seconds at most. The handler's error type is made from
//! the lock's by `From`, so `?` does it everywhere. The example is its own customer, and ends by itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use lockkeeper::{Error, Lockkeeper};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PATIENCE: Duration = Duration::from_secs(2);

struct Shop {
    keeper: Lockkeeper,
    left: AtomicU32,
}

/// Why nothing was sold.
enum Failure {
    Busy,
    SoldOut,
    Lock(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Lock(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Failure::Busy => (StatusCode::SERVICE_UNAVAILABLE, "busy; try again\n".into()),
            Failure::SoldOut => (StatusCode::GONE, "sold out\n".into()),
            // The lock was lost, or its store is away. A name that cannot be one is the customer's fault.
            Failure::Lock(error @ Error::InvalidName { .. }) => {
                (StatusCode::BAD_REQUEST, format!("{error}\n"))
            }
            Failure::Lock(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
        }
        .into_response()
    }
}

async fn sell(State(shop): State<Arc<Shop>>, Path(item): Path<String>) -> Result<String, Failure> {
    let lock = shop.keeper.lock(&format!("stock:{item}"))?;
    let guard = lock.acquire_within(PATIENCE).await?.ok_or(Failure::Busy)?;
    let left = guard.try_run(take_one(&shop)).await?;
    // What was sold under a lock that was lost has to be looked at: a resource that checks the token would have refused it.
    guard.release().await?;
    Ok(format!("sold; {left} left\n"))
}

/// Reads, thinks, writes: what has to be alone.
async fn take_one(shop: &Shop) -> Result<u32, Failure> {
    let left = shop.left.load(SeqCst);
    tokio::time::sleep(Duration::from_millis(5)).await;
    let left = left.checked_sub(1).ok_or(Failure::SoldOut)?;
    shop.left.store(left, SeqCst);
    Ok(left)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shop = Arc::new(Shop {
        keeper: Lockkeeper::connect("memory:").await?,
        left: AtomicU32::new(5),
    });
    let routes = Router::new().route("/sell/{item}", post(sell));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let service = axum::serve(listener, routes.with_state(shop.clone()));
    let service = tokio::spawn(service.into_future());

    let customers: Vec<_> = (0..8).map(|_| tokio::spawn(buy(address))).collect();
    let mut sold = 0;
    for customer in customers {
        let answer = customer.await??;
        println!("{answer}");
        sold += usize::from(answer.starts_with("sold;"));
    }
    assert_eq!((sold, shop.left.load(SeqCst)), (5, 0), "each was sold once");
    service.abort();
    shop.keeper.close().await;
    Ok(())
}

/// One request, by hand.
async fn buy(address: std::net::SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        "POST /sell/cup HTTP/1.1\r\nHost: shop\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.rsplit("\r\n\r\n").next().unwrap_or_default();
    Ok(body.trim().to_owned())
}
