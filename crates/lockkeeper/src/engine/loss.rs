//! Tells observers of a loss once, with its cause.
//!
//! A loss counts at once: for the standing of the hold, for `lost()` and for the tasks that contend next. Observers are told
//! when its cause is known, for which the store may have to be asked.

use std::sync::Arc;
use std::time::Duration;

use super::background::PendingKind;
use super::hold::Hold;
use super::shared::Shared;
use crate::LossCause;

/// How long to ask the store for the cause of a loss before one goes on without it.
pub(super) const CAUSE_LIMIT: Duration = Duration::from_secs(1);

/// Has to tell a loss, and tells it when it is dropped, with the cause that is known by then.
#[derive(Debug)]
pub(super) struct LossReport {
    hold: Arc<Hold>,
    shared: Arc<Shared>,
}

impl LossReport {
    /// Tells the loss at once if its cause is certain, else when the store was asked for it.
    pub fn report(self) {
        if self.hold.loss_cause() != LossCause::NotHeld {
            return;
        }
        let shared = self.shared.clone();
        // The end of the keeper drops the future, and so has the loss told.
        shared.spawner.spawn_pending(PendingKind::CleanUp, async move {
            let _ = tokio::time::timeout(CAUSE_LIMIT, self.ask()).await;
        });
    }

    async fn ask(&self) {
        let Ok(_turn) = self.shared.cause_queries.acquire().await else {
            return;
        };
        let store = &self.shared.store;
        if let Ok(Some(info)) = store.inspect(&self.hold.name).await {
            self.hold.explain(&info, store.capabilities().fencing);
        }
    }
}

impl Drop for LossReport {
    fn drop(&mut self) {
        self.hold.report_loss(&self.shared.observers);
    }
}

/// The store says that a hold is gone.
pub(super) fn report_not_held(shared: &Arc<Shared>, hold: &Arc<Hold>) {
    if hold.set_not_held() {
        report(shared, hold);
    }
}

/// Has a loss told, unless that was done.
pub(super) fn report(shared: &Arc<Shared>, hold: &Arc<Hold>) {
    if let Some(loss_report) = begin(shared, hold) {
        loss_report.report();
    }
}

/// A hold is lost. Returns what tells it, unless there is one.
pub(super) fn begin(shared: &Arc<Shared>, hold: &Arc<Hold>) -> Option<LossReport> {
    hold.begin_loss().then(|| LossReport {
        hold: hold.clone(),
        shared: shared.clone(),
    })
}
