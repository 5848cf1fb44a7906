//! How, for how long and by whom a lock is wanted.

use std::time::Duration;

use super::Core;
use super::waiting::Patience;
use crate::Error;
use crate::error::check_lease;
use crate::owner::OwnerId;
use crate::store::Mode;

/// How a lock is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub mode: Mode,
    pub terms: Terms,
    pub owner: Option<OwnerId>,
    pub patience: Patience,
}

/// For how long a lock is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// The keeper's lease, renewed: such holds may be handed on and shared.
    Usual,
    /// Another lease, renewed.
    Renewed(Duration),
    /// A lease that ends by itself.
    Fixed(Duration),
}

impl Terms {
    /// A renewed lease of this length.
    pub fn renewed(core: &Core, length: Duration) -> Result<Terms, Error> {
        check_lease(length)?;
        Ok(match length == core.lease {
            true => Terms::Usual,
            false => Terms::Renewed(length),
        })
    }

    /// A fixed lease of this length.
    pub fn fixed(length: Duration) -> Result<Terms, Error> {
        check_lease(length)?;
        Ok(Terms::Fixed(length))
    }
}
