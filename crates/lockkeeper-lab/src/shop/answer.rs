//! What the shop answers: always the same JSON object, also when it refuses.

use axum::Json;
use axum::http::header::{ALLOW, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::item::Item;
use super::sale::Outcome;

/// When to come back after a lock that was not to be had, in seconds.
const COME_BACK: HeaderValue = HeaderValue::from_static("1");

/// How a request went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Result {
    /// One was sold.
    Sold,
    /// There was none left.
    SoldOut,
    /// The family got its reward.
    Received,
    /// The family had it already.
    AlreadyReceived,
    /// The lock was not to be had in time; nothing was sold.
    Busy,
    /// The lock was lost meanwhile and the stock refused the write; nothing was sold.
    Fenced,
    /// The lock or the stock cannot be used; nothing was sold.
    Unavailable,
    /// Nobody knows whether it was sold.
    Unknown,
    /// The request makes no sense; nothing was sold.
    Invalid,
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// How it went.
    pub result: Result,
    /// The same for people.
    pub message: String,
    /// What was asked for.
    pub item: Option<String>,
    /// How many are left.
    pub remaining: Option<i64>,
    /// The fencing token that the write carried; only Lockkeeper's locks have one.
    pub token: Option<u64>,
    /// The instance that answers.
    pub port: u16,
}

impl Answer {
    /// A request that makes no sense.
    pub fn invalid(port: u16, message: impl Into<String>) -> Answer {
        Answer {
            result: Result::Invalid,
            message: message.into(),
            item: None,
            remaining: None,
            token: None,
            port,
        }
    }

    pub(super) fn new(item: Item, port: u16, outcome: &Outcome) -> Answer {
        let reward = matches!(item, Item::Reward { .. });
        let (result, message, remaining, token) = match outcome {
            Outcome::Sold(left, token) => {
                if reward {
                    (
                        Result::Received,
                        "here is your reward".into(),
                        *left,
                        *token,
                    )
                } else {
                    (
                        Result::Sold,
                        format!("sold one; {left} left"),
                        *left,
                        *token,
                    )
                }
            }
            Outcome::SoldOut(left, token) => {
                if reward {
                    let message = "the family has received it already".into();
                    (Result::AlreadyReceived, message, *left, *token)
                } else {
                    (Result::SoldOut, "sold out".into(), *left, *token)
                }
            }
            Outcome::Busy => {
                return without_sale(
                    Result::Busy,
                    item,
                    port,
                    "others had the lock for too long; nothing was sold, try again".into(),
                );
            }
            Outcome::Fenced(token) => {
                let message =
                    "the lock was lost and is with another by now; nothing was sold, try again";
                let mut answer = without_sale(Result::Fenced, item, port, message.into());
                answer.token = Some(token.get());
                return answer;
            }
            Outcome::Unavailable(error) => {
                let message = format!("{error:#}; nothing was sold");
                return without_sale(Result::Unavailable, item, port, message);
            }
            Outcome::Unknown(error) => {
                let message = format!("{error:#}; it may or may not be sold");
                return without_sale(Result::Unknown, item, port, message);
            }
        };
        Answer {
            result,
            message,
            item: Some(item.to_string()),
            remaining: Some(remaining),
            token: token.map(|token| token.get()),
            port,
        }
    }

    /// As a response of this status.
    pub fn with(self, status: StatusCode) -> Response {
        let busy = status == StatusCode::SERVICE_UNAVAILABLE;
        let mut response = (status, Json(self)).into_response();
        if busy {
            response.headers_mut().insert(RETRY_AFTER, COME_BACK);
        }
        response
    }

    /// As a response that names the only method there is.
    pub fn wrong_method(self, method: &'static str) -> Response {
        let mut response = self.with(StatusCode::METHOD_NOT_ALLOWED);
        let method = HeaderValue::from_static(method);
        response.headers_mut().insert(ALLOW, method);
        response
    }
}

fn without_sale(result: Result, item: Item, port: u16, message: String) -> Answer {
    Answer {
        result,
        message,
        item: Some(item.to_string()),
        remaining: None,
        token: None,
        port,
    }
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let status = match self.result {
            Result::Sold | Result::SoldOut | Result::Received | Result::AlreadyReceived => {
                StatusCode::OK
            }
            Result::Busy | Result::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Result::Fenced => StatusCode::CONFLICT,
            Result::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
            Result::Invalid => StatusCode::BAD_REQUEST,
        };
        self.with(status)
    }
}
