//! What a server answers to one text of one or more statements.

use std::io;

use super::packet::{Packets, Reader, broken};

/// `COM_QUERY`.
const QUERY: u8 = 3;
/// A transaction is open.
const IN_TRANSACTION: u64 = 0x1;
/// More answers follow.
const MORE: u64 = 0x8;

/// A row: a value, or NULL, for each column.
pub(super) type Row = Vec<Option<Vec<u8>>>;

/// The answer to one statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// It was done, to so many rows.
    Done {
        /// How many rows it found.
        rows: u64,
        /// What `LAST_INSERT_ID(…)` was told.
        id: u64,
    },
    /// What it selects.
    Rows(Vec<Row>),
    /// It failed, and the statements after it were not run.
    Failed(ServerError),
}

/// An error that a server answers with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ServerError {
    pub code: u16,
    pub message: String,
}

impl ServerError {
    /// Reads what follows the mark of an error.
    pub fn read(mut reader: Reader<'_>) -> io::Result<ServerError> {
        let code = reader.number(2)? as u16;
        let text = match reader.0 {
            [b'#', rest @ ..] => rest.get(5..).unwrap_or_default(),
            text => text,
        };
        let text = String::from_utf8_lossy(text);
        let text = text.replace(|c: char| c.is_control(), " ");
        Ok(ServerError {
            code,
            message: text.chars().take(300).collect(),
        })
    }
}

/// All that a server answers to a text.
pub(super) struct Said {
    pub replies: Vec<Reply>,
    /// Whether it says that a transaction is open afterwards.
    pub is_open: bool,
}

/// Sends a text and reads all that the server answers. A future that is dropped in the middle leaves the connection
/// useless, so only the task that owns the connection may call it.
pub(super) async fn exchange(packets: &mut Packets, text: &str) -> io::Result<Said> {
    packets.begin();
    packets.write(&[&[QUERY], text.as_bytes()].concat()).await?;
    let mut replies = Vec::new();
    loop {
        let (reply, status) = one(packets).await?;
        replies.push(reply);
        if status & MORE == 0 {
            let is_open = status & IN_TRANSACTION != 0;
            return Ok(Said { replies, is_open });
        }
    }
}

/// One answer, and the status that comes with it. An error has none.
async fn one(packets: &mut Packets) -> io::Result<(Reply, u64)> {
    let payload = packets.read().await?;
    let mut reader = Reader(&payload);
    match payload.first() {
        Some(0) => {
            reader.bytes(1)?;
            let (rows, id) = (reader.count()?, reader.count()?);
            let status = reader.number(2)?;
            Ok((Reply::Done { rows, id }, status))
        }
        Some(0xff) => {
            reader.bytes(1)?;
            Ok((Reply::Failed(ServerError::read(reader)?), 0))
        }
        // It wants a file of ours, which nobody asked it to.
        Some(0xfb) => Err(broken("the server asks for a file of this machine")),
        _ => {
            let columns = reader.count()? as usize;
            rows(packets, columns).await
        }
    }
}

async fn rows(packets: &mut Packets, columns: usize) -> io::Result<(Reply, u64)> {
    for _ in 0..columns {
        packets.read().await?;
    }
    if end(&packets.read().await?)?.is_none() {
        return Err(broken("a result has more columns than it says"));
    }
    let mut rows = Vec::new();
    loop {
        let payload = packets.read().await?;
        if payload.first() == Some(&0xff) {
            let error = ServerError::read(Reader(&payload[1..]))?;
            return Ok((Reply::Failed(error), 0));
        }
        if let Some(status) = end(&payload)? {
            return Ok((Reply::Rows(rows), status));
        }
        let mut reader = Reader(&payload);
        let row = (0..columns)
            .map(|_| reader.value())
            .collect::<io::Result<Row>>()?;
        rows.push(row);
    }
}

/// The status in what ends a list.
fn end(payload: &[u8]) -> io::Result<Option<u64>> {
    match payload {
        [0xfe, rest @ ..] if rest.len() < 8 => {
            let mut reader = Reader(rest);
            reader.bytes(2)?;
            Ok(Some(reader.number(2)?))
        }
        _ => Ok(None),
    }
}
