//! How, for how long and by whom a lock is wanted.

use std::time::Duration;

use super::Core;
use super::waiting::Patience;
use crate::owner::OwnerId;
use crate::store::Mode;
use crate::{Error, Label};

/// How a lock is wanted.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub mode: Mode,
    pub terms: Terms,
    /// A label that is not the keeper's.
    pub label: Option<Label>,
    pub owner: Option<OwnerId>,
    pub patience: Patience,
}

impl Wish {
    /// Whether the process's claim will do, which tasks hand on and share: it shows the keeper's label and lease.
    pub fn is_usual(&self) -> bool {
        self.terms == Terms::Usual && self.label.is_none()
    }
}

/// Checks a label. `None` if it is the keeper's.
pub(crate) fn other_label(core: &Core, label: &str) -> Result<Option<Label>, Error> {
    let label = Label::new(label)?;
    Ok((core.label.as_ref() != Some(&label)).then_some(label))
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
        core.store().capabilities().check_lease(length)?;
        Ok(match length == core.lease {
            true => Terms::Usual,
            false => Terms::Renewed(length),
        })
    }

    /// A fixed lease of this length.
    pub fn fixed(core: &Core, length: Duration) -> Result<Terms, Error> {
        core.store().capabilities().check_lease(length)?;
        Ok(Terms::Fixed(length))
    }
}
