//! A stream to an address, with or without TLS; and why a server does not let us in.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};

use super::socket::{ReadHalf, WriteHalf};
use crate::Error;
use crate::store::common::{Address, tls};
use crate::store::redis::fault::{refused, unavailable};
use crate::store::redis::url::Settings;

/// How much is read of what a server says to whom it does not let in.
const LONGEST_PARTING: u64 = 4096;

/// Connects, without a login.
pub(super) async fn connect(
    address: &Address,
    settings: &Settings,
) -> Result<(ReadHalf, WriteHalf), Error> {
    let unreachable = |error: io::Error| {
        unavailable(format!("{address} cannot be reached: {error}")).caused_by(error)
    };
    let (host, port) = match address {
        Address::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(unreachable)?;
            return Ok(boxed(stream.into_split()));
        }
        Address::Tcp(host, port) => (host.as_str(), *port),
    };
    let stream = TcpStream::connect((host, port)).await;
    let stream = stream.map_err(unreachable)?;
    // Without it every small request waits for the acknowledgement of the one before.
    stream.set_nodelay(true).map_err(unreachable)?;
    let _ = rustix::net::sockopt::set_socket_keepalive(&stream, true);
    if !settings.tls {
        return Ok(boxed(stream.into_split()));
    }
    let limit = settings.connect_timeout / 2;
    let handshake = tls::handshake(stream, host, &settings.trust, &settings.kind);
    match tokio::time::timeout(limit, handshake).await {
        Ok(Ok(stream)) => Ok(boxed(tokio::io::split(stream))),
        Ok(Err(error)) => Err(error),
        // To a server without TLS a handshake is the start of a long line, whose end it waits for.
        Err(_) => match tokio::time::timeout(limit / 2, speaks_plainly((host, port))).await {
            Ok(true) => Err(refused(tls::no_tls(address, &settings.kind))),
            _ => Err(unavailable(format!(
                "{address} did not answer the TLS handshake within {limit:?}"
            ))),
        },
    }
}

fn boxed<R, W>((read, write): (R, W)) -> (ReadHalf, WriteHalf)
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    (Box::new(read), Box::new(write))
}

/// Whether a server there speaks without TLS. It is told no secret.
async fn speaks_plainly(address: (&str, u16)) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"PING\r\n").await?;
        let mut first = [0];
        stream.read_exact(&mut first).await?;
        Ok::<bool, io::Error>(matches!(first, [b'+' | b'-']))
    };
    ask.await.unwrap_or(false)
}

/// Why a server ends a connection at once; `None` if that is not known.
pub(super) async fn why_ended(address: &Address, settings: &Settings) -> Option<Error> {
    // A server that does not speak TLS may wait for the end of what it takes for a line.
    let limit = settings.connect_timeout / 4;
    if let Ok(true) = tokio::time::timeout(limit, tls::speaks_tls(address, &settings.kind)).await {
        return Some(refused(format!(
            "{address} speaks TLS; {}",
            settings.kind.use_tls
        )));
    }
    let said = parting_words(address, settings).await?;
    Some(not_let_in(address, &said))
}

/// What a server says to a client that it does not let in, before it closes the connection. A client that speaks first may not
/// hear it.
async fn parting_words(address: &Address, settings: &Settings) -> Option<String> {
    let said = async {
        // Both halves: the end of one would be told to the server.
        let (read, _write) = connect(address, settings).await.ok()?;
        let mut said = Vec::new();
        let mut lines = BufReader::new(read.take(LONGEST_PARTING));
        lines.read_until(b'\n', &mut said).await.ok()?;
        parting(&String::from_utf8_lossy(&said))
    };
    let limit = settings.connect_timeout / 4;
    tokio::time::timeout(limit, said).await.ok()?
}

/// The reason in what a server said, without the advice that may follow it for lines.
fn parting(said: &str) -> Option<String> {
    let said = said.lines().next()?.strip_prefix('-')?;
    let said = said.strip_prefix("ERR ").unwrap_or(said);
    Some(match said.split_once(". ") {
        Some((reason, _)) => reason.to_owned(),
        None => said.to_owned(),
    })
}

fn not_let_in(address: &Address, said: &str) -> Error {
    let reason = format!("{address} lets nobody in: {said}");
    if said.starts_with("DENIED") {
        refused(reason)
    } else {
        // Such as too many clients, which may become fewer.
        unavailable(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_a_refusal_is_told_without_the_advice() {
        let reason = |said| parting(said).expect("a reason");
        assert_eq!(
            reason("-ERR max number of clients reached\r\n"),
            "max number of clients reached"
        );
        assert_eq!(
            reason(
                "-DENIED Redis is running in protected mode because protected mode is enabled and no password is set \
                 for the default user. In this mode connections are only accepted from the loopback interface. If you \
                 want to connect from external computers to Redis you may adopt one of the following solutions: 1) \
                 Just disable protected mode.\r\n"
            ),
            "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the \
             default user"
        );
        // What is cut off, and what is none.
        assert_eq!(reason("-LOADING Redis is"), "LOADING Redis is");
        assert_eq!(parting("HTTP/1.1 400 Bad Request\r\n"), None);
        assert_eq!(parting(""), None);
    }
}
