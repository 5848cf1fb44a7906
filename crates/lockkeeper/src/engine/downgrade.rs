//! A hold for writing becomes one for reading.

use super::acquisition::Acquisition;
use super::loss_error;
use super::process_claim::new_hold;
use super::raw_guard::RawGuard;
use crate::Error;
use crate::store::Mode;

/// Acquires for reading beside the writer's hold, then releases that: nobody else can write in between.
pub(crate) async fn downgrade(writer: RawGuard) -> Result<RawGuard, Error> {
    let arbiter = writer.arbiter().clone();
    let core = &arbiter.core;
    let (hold, owner) = (writer.state().hold.clone(), writer.state().owner);
    if writer.state().depth() > 1 {
        return Err(Error::WouldDeadlock {
            name: arbiter.name.clone(),
            reason: "its owner has re-entered it; release the inner guards before a downgrade",
        });
    }
    let length = hold.length();
    let mut acquisition = Acquisition::new(core, arbiter.name.clone(), Mode::Read, length)
        .labelled(hold.label.as_ref())
        .beside(hold.claim);
    let granted = match acquisition.try_once(1).await {
        Ok(Some(granted)) => granted,
        // Either the store does not have the writer's hold, and releasing it says why; or the request was late.
        Ok(None) => {
            writer.leave().await?;
            return Err(Error::unavailable(
                core.store().capabilities().store,
                "the request reached it too late, and the lock was released; acquire it anew",
            ));
        }
        // That the writer was lost is certain, and matters more than that the store is away.
        Err(_) if !hold.is_held() => return Err(hold.lost_error()),
        Err(error) => return Err(error),
    };
    let read = new_hold(&arbiter, Mode::Read, &granted, length, hold.is_renewed());
    let reader = RawGuard::of_own_claim(&arbiter, read, granted.grant.token, owner);
    reader.announce(reader.state().since);
    match writer.leave().await {
        Err(Error::Lost { .. }) => {
            // The store no longer had the writer when it granted the reader. The reader leaves first, so that the error names the
            // holder that comes after it.
            let _ = reader.leave().await;
            Err(loss_error::inspected(core, &hold).await)
        }
        // A writer's release that failed goes on in the background. The reader holds in any case.
        Ok(_) | Err(_) => Ok(reader),
    }
}
