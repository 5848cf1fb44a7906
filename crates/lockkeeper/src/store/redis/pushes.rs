//! What a server sends without being asked for: hints, and that something has ended.

use std::sync::PoisonError;

use ::redis::{PushInfo, PushKind, Value};

use super::keys::WAKE;
use super::shared::Shared;
use super::subscriptions::Topic;
use crate::Name;
use crate::store::ClaimId;

impl Shared {
    /// Something came without being asked for.
    pub fn pushed(&self, number: u64, push: &PushInfo) {
        let text = |at: usize| match push.data.get(at) {
            Some(Value::BulkString(bytes)) => std::str::from_utf8(bytes).ok(),
            Some(Value::SimpleString(text)) => Some(text.as_str()),
            _ => None,
        };
        match &push.kind {
            PushKind::Disconnection => self.broken(number, "the server closed it".into()),
            PushKind::Message => match (text(0), text(1)) {
                (Some(channel), Some(message)) if channel == self.channel => self.hinted(message),
                (Some(channel), _) => self.subscriptions.came(&Topic::Channel(channel.to_owned())),
                _ => {}
            },
            PushKind::PMessage => {
                if let Some(pattern) = text(0) {
                    self.subscriptions.came(&Topic::Pattern(pattern.to_owned()));
                }
            }
            PushKind::SMessage => match (text(0), text(1)) {
                (Some(channel), Some(message)) if channel.starts_with(WAKE) => self.hinted(message),
                (Some(channel), _) => self.subscriptions.came(&Topic::Shard(channel.to_owned())),
                _ => {}
            },
            PushKind::SUnsubscribe => {
                let leaving = self.leaving.lock();
                let mut leaving = leaving.unwrap_or_else(PoisonError::into_inner);
                if !text(0).is_some_and(|channel| leaving.remove(channel)) {
                    self.doubt();
                    self.broken(number, "a slot has moved to another node".into());
                }
            }
            _ => {}
        }
    }

    /// A claim of ours may now succeed: `<claim> <name>`. Or its hold was broken: `! <claim>`.
    fn hinted(&self, message: &str) {
        let hints = self.subscriptions.hints();
        match message.split_once(' ') {
            Some(("!", claim)) => {
                if let Ok(claim) = claim.parse::<ClaimId>() {
                    hints.keeper(claim.keeper);
                }
            }
            Some((claim, name)) => {
                let name = name.strip_prefix(self.settings.prefix.as_str());
                let name = name.and_then(|name| Name::new(name).ok());
                if let (Ok(claim), Some(name)) = (claim.parse(), name) {
                    hints.claim(&name, claim);
                }
            }
            None => {}
        }
    }
}
