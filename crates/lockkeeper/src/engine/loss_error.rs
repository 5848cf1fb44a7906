//! The error of work that cannot go on because its hold is lost.

use super::core::Core;
use super::hold::Hold;
use super::loss::CAUSE_LIMIT;
use crate::clock::Moment;
use crate::{Error, LossCause};

/// The error with the cause and the present holder, as far as the store shows them.
pub(super) async fn inspected(core: &Core, hold: &Hold) -> Error {
    let info = core.bounded(core.store().inspect(&hold.name)).await;
    let Ok(Some(info)) = info else {
        return hold.lost_error();
    };
    hold.explain(&info, core.store().capabilities().fencing);
    let mut others = info.holders.into_iter();
    let other = others.find(|holder| holder.claim != hold.claim);
    Error::Lost {
        name: hold.name.clone(),
        cause: hold.loss_cause(),
        now_held_by: other.map(|holder| Box::new(holder.process)),
    }
}

/// As [`inspected`], but the store is inspected only if it may know the cause, and for a second at most.
pub(super) async fn soon(core: &Core, hold: &Hold) -> Error {
    if hold.loss_cause() != LossCause::NotHeld {
        return hold.lost_error();
    }
    tokio::select! {
        biased;
        error = inspected(core, hold) => error,
        () = core.background.sleep_until(Moment::now() + CAUSE_LIMIT) => hold.lost_error(),
    }
}
