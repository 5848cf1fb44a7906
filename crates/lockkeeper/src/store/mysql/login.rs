//! The first exchange with a server: what it is, TLS, and who we are.

use std::io;

use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

use super::packet::{Packets, Reader, broken};
use super::reply::ServerError;

const LONG_PASSWORD: u32 = 0x1;
/// An UPDATE counts the rows that it finds, whether it changes them or not.
const FOUND_ROWS: u32 = 0x2;
const LONG_FLAG: u32 = 0x4;
const CONNECT_WITH_DB: u32 = 0x8;
const PROTOCOL_41: u32 = 0x200;
const SSL: u32 = 0x800;
const TRANSACTIONS: u32 = 0x2000;
const SECURE_CONNECTION: u32 = 0x8000;
const MULTI_STATEMENTS: u32 = 0x1_0000;
const MULTI_RESULTS: u32 = 0x2_0000;
const PLUGIN_AUTH: u32 = 0x8_0000;

const OURS: u32 = LONG_PASSWORD
    | FOUND_ROWS
    | LONG_FLAG
    | CONNECT_WITH_DB
    | PROTOCOL_41
    | TRANSACTIONS
    | SECURE_CONNECTION
    | MULTI_STATEMENTS
    | MULTI_RESULTS
    | PLUGIN_AUTH;

/// utf8mb4.
const CHARSET: u8 = 45;
const NATIVE: &str = "mysql_native_password";
const CACHING: &str = "caching_sha2_password";

/// Why a login fails.
#[derive(Debug)]
pub(super) enum Denied {
    /// The connection ended, or the server says what it must not.
    Lost(io::Error),
    /// The server says no.
    Server(ServerError),
    /// The password would cross the network for others to read.
    NeedsTls,
    /// We cannot prove who we are in this way.
    Plugin(String),
    /// The server speaks no protocol that we know.
    TooOld(String),
}

impl From<io::Error> for Denied {
    fn from(error: io::Error) -> Denied {
        Denied::Lost(error)
    }
}

/// What a server says of itself at first.
#[derive(Debug)]
pub(super) struct Greeting {
    /// The number of this connection.
    pub connection: u64,
    pub offers_tls: bool,
    salt: Vec<u8>,
    plugin: String,
}

/// The user and the database that a connection is for.
pub(super) struct Login<'a> {
    pub user: &'a str,
    pub password: &'a str,
    pub database: &'a str,
    /// Whether nobody else can read what is sent: by TLS, or as it stays on this machine.
    pub is_private: bool,
}

impl Greeting {
    pub async fn read(packets: &mut Packets) -> Result<Greeting, Denied> {
        let payload = packets.read().await?;
        let mut reader = Reader(&payload);
        match reader.number(1)? {
            10 => {}
            0xff => return Err(Denied::Server(ServerError::read(reader)?)),
            other => return Err(Denied::TooOld(format!("protocol {other}"))),
        }
        let version = String::from_utf8_lossy(reader.text()).into_owned();
        let connection = reader.number(4)?;
        let mut salt = reader.bytes(8)?.to_vec();
        reader.bytes(1)?;
        let low = reader.number(2)? as u32;
        reader.bytes(3)?;
        let offers = low | (reader.number(2)? as u32) << 16;
        let length = reader.number(1)? as usize;
        reader.bytes(10)?;
        if offers & (PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH | MULTI_STATEMENTS)
            != PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH | MULTI_STATEMENTS
        {
            return Err(Denied::TooOld(version));
        }
        let rest = reader.bytes(length.saturating_sub(8).max(13))?;
        salt.extend_from_slice(rest.strip_suffix(&[0]).unwrap_or(rest));
        Ok(Greeting {
            connection,
            offers_tls: offers & SSL != 0,
            salt,
            plugin: String::from_utf8_lossy(reader.text()).into_owned(),
        })
    }

    /// Tells the server that TLS begins.
    pub async fn ask_for_tls(&self, packets: &mut Packets) -> io::Result<()> {
        packets.write(&head(OURS | SSL)).await
    }

    /// Shows who we are. `tls` says whether TLS has begun.
    pub async fn log_in(
        &self,
        packets: &mut Packets,
        login: &Login<'_>,
        tls: bool,
    ) -> Result<(), Denied> {
        let plugin = match self.plugin.as_str() {
            CACHING => CACHING,
            _ => NATIVE,
        };
        let proof = proof(plugin, login.password, &self.salt);
        let mut payload = head(if tls { OURS | SSL } else { OURS });
        payload.extend_from_slice(login.user.as_bytes());
        payload.push(0);
        payload.push(proof.len() as u8);
        payload.extend_from_slice(&proof);
        payload.extend_from_slice(login.database.as_bytes());
        payload.push(0);
        payload.extend_from_slice(plugin.as_bytes());
        payload.push(0);
        packets.write(&payload).await?;
        loop {
            let payload = packets.read().await?;
            let mut reader = Reader(&payload);
            match reader.number(1)? {
                0 => return Ok(()),
                0xff => return Err(Denied::Server(ServerError::read(reader)?)),
                // The server wants another proof.
                0xfe => {
                    let plugin = String::from_utf8_lossy(reader.text()).into_owned();
                    let salt = reader.0.strip_suffix(&[0]).unwrap_or(reader.0);
                    if plugin != NATIVE && plugin != CACHING {
                        return Err(Denied::Plugin(plugin));
                    }
                    let proof = self::proof(&plugin, login.password, salt);
                    packets.write(&proof).await?;
                }
                // More about `caching_sha2_password`: it knows the password already, or has to see it.
                1 => match reader.number(1)? {
                    3 => {}
                    4 if login.is_private => {
                        packets
                            .write(&[login.password.as_bytes(), &[0]].concat())
                            .await?;
                    }
                    4 => return Err(Denied::NeedsTls),
                    _ => return Err(broken("the server asks for something unknown").into()),
                },
                _ => return Err(broken("the server answers a login with something else").into()),
            }
        }
    }
}

/// What both the request for TLS and the login begin with.
fn head(flags: u32) -> Vec<u8> {
    let mut head = flags.to_le_bytes().to_vec();
    head.extend_from_slice(&(16_u32 << 20).to_le_bytes());
    head.push(CHARSET);
    head.extend_from_slice(&[0; 23]);
    head
}

/// Shows that we know the password, without saying it.
fn proof(plugin: &str, password: &str, salt: &[u8]) -> Vec<u8> {
    if password.is_empty() {
        return Vec::new();
    }
    let (once, with_salt) = match plugin {
        CACHING => {
            let hash = |bytes: &[u8]| digest(&SHA256, bytes).as_ref().to_vec();
            let once = hash(password.as_bytes());
            let with_salt = hash(&[&hash(&once), salt].concat());
            (once, with_salt)
        }
        _ => {
            let hash = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec();
            let once = hash(password.as_bytes());
            let with_salt = hash(&[salt, &hash(&once)].concat());
            (once, with_salt)
        }
    };
    let pairs = once.iter().zip(&with_salt);
    pairs.map(|(one, other)| one ^ other).collect()
}
