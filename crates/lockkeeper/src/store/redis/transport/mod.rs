//! How bytes reach a server and come back: a `stream`, a `socket` on it with requests and replies (`resp`) and the `topics` that
//! it is subscribed to, and the login.

pub(super) mod resp;
mod socket;
mod stream;
mod topics;

use ::redis::{Cmd, RedisError, RedisResult};

pub(in crate::store) use self::socket::Socket;
pub(super) use self::socket::{Heard, Reply};
pub(super) use self::topics::{Push, Topic};
use super::fault::{explain, refused, words};
use super::url::Settings;
use crate::Error;
use crate::store::common::{Address, tls};

/// A socket that we are logged in on. It ends with its owner.
pub(super) struct Link {
    pub socket: Socket,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.socket.give_up();
    }
}

/// The user that we are to a server.
#[derive(Clone, Copy)]
pub(super) struct Login<'a> {
    pub user: Option<&'a str>,
    pub password: Option<&'a str>,
    pub database: u32,
    /// Whether it is the first time: then a connection that ends at once may mean that the server wants TLS.
    pub first: bool,
}

impl Settings {
    /// The user that we are to a server that keeps locks.
    pub fn login(&self, first: bool) -> Login<'_> {
        Login {
            user: self.credentials.user.as_deref(),
            password: self.credentials.password(),
            database: self.database,
            first,
        }
    }
}

impl Link {
    /// Connects and logs in. The runtime of the caller reads, and calls `heard` with what comes without being asked for.
    pub async fn open(
        address: &Address,
        settings: &Settings,
        login: Login<'_>,
        heard: impl Fn(Heard) + Send + Sync + 'static,
    ) -> Result<Link, Error> {
        let stream = stream::connect(address, settings).await?;
        let link = Link {
            socket: Socket::start(stream, heard),
        };
        let Err(error) = log_in(&link.socket, login).await else {
            return Ok(link);
        };
        // A server that expects TLS closes the connection, or says something that is none of ours.
        if login.first
            && error.code().is_none()
            && !settings.tls
            && let Some(error) = stream::why_ended(address, settings).await
        {
            return Err(error);
        }
        Err(explain_refusal(&error, login))
    }
}

async fn log_in(socket: &Socket, login: Login<'_>) -> RedisResult<()> {
    let mut requests = ::redis::pipe();
    requests.add_command(hello(login));
    let mut needed = 1;
    if login.database != 0 {
        requests.cmd("SELECT").arg(login.database);
        needed += 1;
    }
    // An older server does not know these.
    for (what, value) in [
        ("LIB-NAME", "lockkeeper"),
        ("LIB-VER", env!("CARGO_PKG_VERSION")),
    ] {
        requests.cmd("CLIENT").arg("SETINFO").arg(what).arg(value);
    }
    let answers = socket.send_all(&requests, 0).await?;
    answers
        .into_iter()
        .take(needed)
        .try_for_each(|answer| answer.extract_error().map(drop))
}

fn hello(login: Login<'_>) -> Cmd {
    let mut hello = ::redis::cmd("HELLO");
    hello.arg(3);
    if let Some(password) = login.password {
        let user = login.user.unwrap_or("default");
        hello.arg("AUTH").arg(user).arg(password);
    }
    hello
}

/// Why a server does not let us in.
fn explain_refusal(error: &RedisError, login: Login<'_>) -> Error {
    let said = words(error);
    if said.contains("unknown command") && said.contains("HELLO") {
        return refused("the server does not speak RESP3; locks need Redis 6.2 or newer".into());
    }
    if let Some(reason) = tls::explain_alert(&said) {
        return refused(reason);
    }
    if said.contains("DB index") {
        return refused(format!("the server has no database {}", login.database));
    }
    if login.password.is_none() && (error.code() == Some("NOAUTH") || said.contains("NOAUTH")) {
        return refused(
            "the server asks for a password; put it into the URL or name a password_file".into(),
        );
    }
    explain(error)
}
