//! The shop: an HTTP service that reads stock, decides and writes back. Only a lock keeps it from overselling.
//!
//! # Layout
//! - [`serve`](fn@serve): one instance. Its parts: [`item`](Item) is what is sold, [`stock`] where it is counted, [`lock`]
//!   what protects it, `sale` the three steps, `routes` and `answer` the HTTP, `gate` who is let in, `openapi` its description.
//! - [`load`]: a load generator that spreads over instances and counts what was sold.
//! - [`Instance`]: an instance in a process of its own, to be killed.

mod answer;
mod gate;
mod instance;
mod item;
pub mod load;
pub mod lock;
mod openapi;
mod routes;
mod sale;
mod serve;
pub mod stock;

pub use instance::Instance;
pub use item::Item;
pub use routes::{ROUTES, Route};
pub use serve::{Opened, ServeOptions, serve};
