//! The ways in. One table says what there is; the router, the load generator and the tests read it.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Json, Router, middleware};
use serde_json::json;

use super::answer::Answer;
use super::gate::{self, Gate};
use super::item::{GOODS, Item, USUAL_REWARD};
use super::openapi;
use super::sale::Shop;
use super::stock::Account;

/// More than this is no request of ours.
const MOST_BODY: usize = 1_024;

/// How long a body may take.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A way to buy something.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The path.
    pub path: &'static str,
    /// Whether the instance's lock is acquired for it.
    pub locked: bool,
    goods: Goods,
}

/// What a route sells.
#[derive(Clone, Copy, Debug)]
enum Goods {
    Always(Item),
    /// A good, `goodId` or this one.
    Good(u32),
    /// A reward for the family `familyId` or this one.
    Reward(u32),
}

/// Every way to buy something.
pub const ROUTES: &[Route] = &[
    route(
        "GET",
        "/inventory/sale",
        true,
        Goods::Always(Item::Inventory),
    ),
    route(
        "GET",
        "/inventory/saleTicket",
        true,
        Goods::Always(Item::Inventory),
    ),
    route(
        "GET",
        "/order/submitOrder",
        true,
        Goods::Always(Item::Product),
    ),
    route("POST", "/redisLock/saleGoods", false, Goods::Good(1)),
    route("POST", "/redisLock/saleGoodsLock", true, Goods::Good(2)),
    route("POST", "/redisLock/receiveAward", false, Goods::Reward(1)),
    route(
        "POST",
        "/redisLock/receiveAwardLock",
        true,
        Goods::Reward(2),
    ),
];

const fn route(method: &'static str, path: &'static str, locked: bool, goods: Goods) -> Route {
    Route {
        method,
        path,
        locked,
        goods,
    }
}

impl Route {
    /// The route of a path; what follows a question mark does not matter.
    pub fn find(path: &str) -> Option<&'static Route> {
        let path = path.split('?').next().unwrap_or_default();
        ROUTES.iter().find(|route| route.path == path)
    }

    /// What a request for this sells.
    ///
    /// # Errors
    /// What is wrong with its parameters.
    pub fn item(&self, uri: &Uri) -> Result<Item, String> {
        let Ok(Query(query)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else {
            return Err("the parameters cannot be read; write ?name=value".into());
        };
        let known: &[&str] = match self.goods {
            Goods::Always(_) => &[],
            Goods::Good(_) => &["goodId"],
            Goods::Reward(_) => &["familyId", "rewardType"],
        };
        for (at, (name, _)) in query.iter().enumerate() {
            let name = name.as_str();
            if !known.contains(&name) {
                let known = match known {
                    [] => "there are none".to_owned(),
                    known => format!("there are {}", known.join(" and ")),
                };
                return Err(format!("unknown parameter {}; {known}", excerpt(name)));
            }
            if query[..at].iter().any(|(before, _)| before == name) {
                return Err(format!("the parameter {name} is there twice"));
            }
        }
        let number = |name: &str, usual: u32| match query.iter().find(|(known, _)| known == name) {
            None => Ok(usual),
            Some((_, text)) => text
                .parse::<u32>()
                .ok()
                .filter(|number| *number > 0)
                .ok_or_else(|| {
                    let most = u32::MAX;
                    format!(
                        "{name} is {}; write a number from 1 to {most}",
                        excerpt(text)
                    )
                }),
        };
        match self.goods {
            Goods::Always(item) => Ok(item),
            Goods::Reward(family) => Ok(Item::Reward {
                family: number("familyId", family)?,
                kind: number("rewardType", USUAL_REWARD)?,
            }),
            Goods::Good(good) => {
                let id = number("goodId", good)?;
                if GOODS.iter().any(|(known, _)| *known == id) {
                    Ok(Item::Good(id))
                } else {
                    Err(format!("there is no good {id}; there are 1 and 2"))
                }
            }
        }
    }
}

fn excerpt(text: &str) -> String {
    format!("{:?}", text.chars().take(40).collect::<String>())
}

/// What the requests share.
#[derive(Debug)]
pub(super) struct Site {
    pub shop: Arc<Shop>,
    /// What protects it and where its stock is, without passwords.
    pub lock: String,
    pub stock: String,
}

pub(super) fn router(site: Site, gate: Gate) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        // Any method, so that HEAD, which `get` would serve as well, does not sell.
        let sell = move |state, request| sell(route, state, request);
        router = router.route(route.path, any(sell));
    }
    router
        .route("/health", any(health))
        .route("/stats", any(stats))
        .route(openapi::PATH, any(describe))
        .fallback(nothing_here)
        .with_state(Arc::new(site))
        .layer(middleware::from_fn_with_state(Arc::new(gate), gate::gate))
}

type Shared = State<Arc<Site>>;

async fn sell(route: &'static Route, State(site): Shared, request: Request) -> Response {
    let shop = site.shop.clone();
    let port = shop.port;
    if request.method().as_str() != route.method {
        let message = format!("{} answers {} only", route.path, route.method);
        return Answer::invalid(port, message).wrong_method(route.method);
    }
    let item = match route.item(request.uri()) {
        Ok(item) => item,
        Err(message) => return Answer::invalid(port, message).into_response(),
    };
    if let Err((status, message)) = without_body(request.into_body()).await {
        return Answer::invalid(port, message).with(status);
    }
    // As a task: a customer who hangs up does not cut a sale in half.
    let selling = async move { Answer::new(item, port, &shop.sell(item, route.locked).await) };
    match tokio::spawn(selling).await {
        Ok(answer) => answer.into_response(),
        Err(error) => {
            let mut answer = Answer::invalid(port, format!("the sale broke off: {error}"));
            answer.result = super::answer::Result::Unknown;
            answer.into_response()
        }
    }
}

/// What is told in a body would be overlooked, so it is refused.
async fn without_body(body: Body) -> Result<(), (StatusCode, &'static str)> {
    let reading = axum::body::to_bytes(body, MOST_BODY);
    let Ok(body) = tokio::time::timeout(BODY_WITHIN, reading).await else {
        return Err((
            StatusCode::REQUEST_TIMEOUT,
            "the body that was announced does not come; send none",
        ));
    };
    match body {
        Ok(body) if body.trim_ascii().is_empty() || body.trim_ascii() == b"{}" => Ok(()),
        Ok(_) => Err((
            StatusCode::BAD_REQUEST,
            "parameters belong into the address, as in ?familyId=7; send no body",
        )),
        Err(_) => Err((
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is too long or cannot be read; send none",
        )),
    }
}

/// What is said to who asks by another method.
fn unless_get(site: &Site, method: &Method) -> Option<Response> {
    match *method {
        Method::GET | Method::HEAD => None,
        _ => {
            let answer = Answer::invalid(site.shop.port, "this answers GET only");
            Some(answer.wrong_method("GET"))
        }
    }
}

async fn health(State(site): Shared, method: Method) -> Response {
    let Shop {
        port,
        waiting,
        deciding,
        ..
    } = &*site.shop;
    let health = json!({
        "port": port,
        "lock": site.lock,
        "stock": site.stock,
        "waiting": waiting.load(SeqCst),
        "deciding": deciding.load(SeqCst),
    });
    unless_get(&site, &method).unwrap_or_else(|| Json(health).into_response())
}

async fn stats(State(site): Shared, method: Method) -> Response {
    if let Some(refusal) = unless_get(&site, &method) {
        return refusal;
    }
    match site.shop.stock.accounts().await {
        Ok(accounts) => {
            let accounts: Vec<_> = accounts.iter().map(account).collect();
            let stats = json!({"port": site.shop.port, "accounts": accounts});
            Json(stats).into_response()
        }
        Err(error) => {
            let mut answer = Answer::invalid(site.shop.port, format!("{error:#}"));
            answer.result = super::answer::Result::Unavailable;
            answer.into_response()
        }
    }
}

fn account(account: &Account) -> serde_json::Value {
    json!({
        "item": account.item,
        "opening": account.opening,
        "stock": account.stock,
        "sales": account.sales,
        "oversold": account.oversold(),
        "lost_updates": account.lost_updates(),
    })
}

async fn describe(State(site): Shared, method: Method) -> Response {
    unless_get(&site, &method).unwrap_or_else(|| Json(openapi::description()).into_response())
}

async fn nothing_here(State(site): Shared) -> Response {
    let message = format!("there is nothing here; see {}", openapi::PATH);
    Answer::invalid(site.shop.port, message).with(StatusCode::NOT_FOUND)
}
