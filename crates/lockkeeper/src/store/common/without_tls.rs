//! The module `tls` of a build without the feature `tls`. It has the same functions, so that a network store calls them in
//! both builds.
#![allow(dead_code, reason = "a build without network stores calls none of it")]

use std::fmt::Display;

use super::{Address, StoreKind, Trust};
use crate::Error;

/// Why a URL that asks for TLS is refused.
pub(super) const MISSING: &str = "this build has no TLS; enable the cargo feature `tls`";

/// Refuses. It is hardly called: [`Trust::read`] refuses a URL that asks for TLS before there is a connection.
pub async fn handshake<S>(_: S, _: &str, _: &Trust, kind: &StoreKind) -> Result<S, Error> {
    Err(kind.refused(MISSING))
}

/// Refuses, as [`handshake`] does.
pub async fn handshake_for<S>(
    _: S,
    _: &str,
    _: &Trust,
    kind: &StoreKind,
    _: &[&[u8]],
) -> Result<S, Error> {
    Err(kind.refused(MISSING))
}

/// Returns `false`: without TLS nothing can be said of the server.
pub async fn speaks_tls(_: &Address, _: &StoreKind) -> bool {
    false
}

/// Returns why there is no TLS with a server.
pub fn no_tls(_: &dyn Display, _: &StoreKind) -> String {
    MISSING.into()
}

/// Returns `None`: without TLS there are no alerts.
pub fn explain_alert(_: &str) -> Option<String> {
    None
}
