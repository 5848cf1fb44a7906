//! What the shop sells or gives away.

use std::fmt;

/// The name of each good and how many there are at the start: ids 1 and 2.
pub(super) const GOODS: [(u32, &str); 2] = [(1, "哇哈哈"), (2, "卫龙")];
/// How many of each good there are at the start.
pub(super) const GOODS_SIZE: i64 = 5;
/// The kind of reward that a family is given unless it asks for another.
pub(super) const USUAL_REWARD: u32 = 1;

/// Something with a count that a sale makes smaller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Item {
    /// What `/inventory/sale` and `/inventory/saleTicket` sell.
    Inventory,
    /// What `/order/submitOrder` sells.
    Product,
    /// A row of the table `good`.
    Good(u32),
    /// What a family gets once: a row in `family_reward_record`.
    Reward {
        /// The family.
        family: u32,
        /// The kind of reward.
        kind: u32,
    },
}

impl Item {
    /// The lock that protects it.
    pub fn lock_name(self) -> String {
        format!("shop:{self}")
    }
}

/// The item's name: in answers, in the ledger, and as a key in Redis.
impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Item::Inventory => f.write_str("inventory001"),
            Item::Product => f.write_str("1001"),
            Item::Good(id) => write!(f, "good:{id}"),
            Item::Reward { family, kind } => write!(f, "family_reward_record:{family}:{kind}"),
        }
    }
}
