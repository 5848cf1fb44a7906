//! Reports the loss of a hold, once and with its cause.
//!
//! A loss takes effect at once: for the state of the hold, for `lost()` and for the tasks that contend next. It is reported when its
//! cause is known, for which the store may have to be inspected.

use std::sync::Arc;
use std::time::Duration;

use super::background::PendingKind;
use super::hold::Hold;
use super::shared::Shared;
use crate::LossCause;

/// How long to wait for the cause of a loss before it is reported without one.
pub(super) const CAUSE_LIMIT: Duration = Duration::from_secs(1);

/// The duty to report a loss. Dropped, it reports the loss with the cause that is known by then.
#[derive(Debug)]
pub(super) struct LossReport {
    hold: Arc<Hold>,
    shared: Arc<Shared>,
}

impl LossReport {
    /// Reports the loss at once if its cause is certain, otherwise once the store has been inspected.
    pub fn report(self) {
        if self.hold.loss_cause() != LossCause::NotHeld {
            return;
        }
        let shared = self.shared.clone();
        // The end of the keeper drops the future, which reports the loss.
        shared
            .spawner
            .spawn_pending(PendingKind::CleanUp, async move {
                let _ = tokio::time::timeout(CAUSE_LIMIT, self.find_cause()).await;
            });
    }

    async fn find_cause(&self) {
        let Ok(_permit) = self.shared.cause_queries.acquire().await else {
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

/// Reports the loss of a hold that the store no longer has.
pub(super) fn report_not_held(shared: &Arc<Shared>, hold: &Arc<Hold>) {
    if hold.set_not_held() {
        report(shared, hold);
    }
}

/// Reports the loss of a hold, unless that was done.
pub(super) fn report(shared: &Arc<Shared>, hold: &Arc<Hold>) {
    if let Some(loss_report) = begin(shared, hold) {
        loss_report.report();
    }
}

/// Begins the loss of a hold. Returns the duty to report it, unless another has it.
pub(super) fn begin(shared: &Arc<Shared>, hold: &Arc<Hold>) -> Option<LossReport> {
    hold.begin_loss().then(|| LossReport {
        hold: hold.clone(),
        shared: shared.clone(),
    })
}
