//! Count-downs, and the wait for the latch to open.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper::{Error, Latch};
use lockkeeper_testkit::history::{Answer, Call, LatchAsk};

use super::Mixer;

/// How long a latch is waited for: somebody who was to count down may have been killed.
const WAIT: Duration = Duration::from_secs(3);

impl Mixer {
    /// Counts a latch down, so many times at once, and waits for it.
    pub async fn count_down(self: Arc<Self>, name: String, count: u32) {
        let Ok(latch) = self.keeper.latch(&name) else {
            return;
        };
        let each = (0..count).map(|_| {
            let (mixer, latch) = (self.clone(), latch.clone());
            tokio::spawn(async move {
                let ask = LatchAsk::CountDown;
                mixer.ask(&latch, ask, latch.count_down()).await;
            })
        });
        let waits = async {
            let opens = async {
                let open = latch.wait_within(WAIT).await?;
                Ok(if open { 0 } else { u32::MAX })
            };
            self.ask(&latch, LatchAsk::Wait, opens).await;
        };
        let each: Vec<_> = each.collect();
        waits.await;
        for one in each {
            let _ = one.await;
        }
    }

    async fn ask(
        &self,
        latch: &Latch,
        ask: LatchAsk,
        answer: impl Future<Output = Result<u32, Error>>,
    ) {
        let latch = latch.name().to_string();
        let op = self.recorder.invoke(Call::Latch { latch, ask });
        match answer.await {
            Ok(count) => self.recorder.ok(op, Answer::Count(count)),
            Err(error) => self.recorder.error(op, &error),
        }
    }
}
