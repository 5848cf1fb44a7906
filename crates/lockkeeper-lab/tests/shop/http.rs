//! What the shop refuses, and whether it is as described.

use lockkeeper_lab::shop::lock::LockKind;
use lockkeeper_lab::shop::{Instance, ROUTES};
use serde_json::Value;

use crate::scene::{Place, Response, ask, ask_with, start};

fn refused(answer: &Response, status: u16, word: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    let json = answer.json();
    assert_eq!(json["result"], "invalid", "{answer:?}");
    let message = json["message"].as_str().unwrap_or_default();
    assert!(message.contains(word), "{message:?} says {word:?}");
}

/// The whole books.
fn books(shop: &Instance) -> Value {
    ask(shop, "GET", "/stats", "").json()["accounts"].clone()
}

#[test]
fn bad_input_is_refused_with_a_reason_and_sells_nothing() {
    let place = Place::new();
    let shop = start(&place.options(LockKind::None));
    let before = books(&shop);
    for route in ROUTES {
        let other = if route.method == "GET" { "POST" } else { "GET" };
        for method in [other, "HEAD", "PUT", "DELETE", "OPTIONS", "BREW"] {
            let answer = ask(&shop, method, route.path, "");
            assert_eq!(answer.status, 405, "{answer:?}");
            assert_eq!(answer.header("Allow"), Some(route.method));
        }
        for (query, word) in [
            ("?price=0", "unknown parameter \"price\""),
            ("?%00=1", "unknown parameter"),
            ("?familyid=1", "unknown parameter"),
        ] {
            let path = format!("{}{query}", route.path);
            refused(&ask(&shop, route.method, &path, ""), 400, word);
        }
        let body = ask(&shop, route.method, route.path, "{\"familyId\": 9}");
        refused(&body, 400, "send no body");
        let long = "x".repeat(100_000);
        refused(
            &ask(&shop, route.method, route.path, &long),
            413,
            "too long",
        );
        let path = format!("{}/", route.path);
        refused(&ask(&shop, route.method, &path, ""), 404, "nothing here");
    }
    for (path, word) in [
        ("receiveAward?familyId=x", "familyId is \"x\""),
        ("receiveAward?familyId=0", "a number from 1"),
        ("receiveAwardLock?familyId=-1", "a number from 1"),
        ("receiveAwardLock?familyId=1.5", "a number from 1"),
        ("receiveAwardLock?familyId=99999999999", "a number from 1"),
        ("receiveAwardLock?familyId=", "a number from 1"),
        (
            "receiveAwardLock?rewardType=%27%3B+DROP+TABLE+good",
            "rewardType is",
        ),
        ("receiveAwardLock?familyId=1&familyId=2", "twice"),
        ("saleGoods?goodId=3", "there is no good 3"),
        ("saleGoodsLock?goodId=good", "goodId is"),
    ] {
        let path = format!("/redisLock/{path}");
        refused(&ask(&shop, "POST", &path, ""), 400, word);
    }
    refused(&ask(&shop, "GET", "/", ""), 404, "/openapi.json");
    for path in ["/health", "/stats", "/openapi.json"] {
        refused(&ask(&shop, "POST", path, ""), 405, "GET only");
    }
    assert_eq!(books(&shop), before);
}

#[test]
fn an_empty_body_is_no_body() {
    let place = Place::new();
    let shop = start(&place.options(LockKind::Mutex));
    for body in ["", "{}", " \n"] {
        let answer = ask(&shop, "POST", "/redisLock/saleGoods", body);
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

/// Checks a value against a schema of the description, as far as it uses any.
fn matches(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    if let Some(name) = schema["$ref"].as_str() {
        let pointer = name.trim_start_matches('#');
        let schema = root.pointer(pointer).ok_or(format!("no {name}"))?;
        return matches(root, schema, value);
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        one => vec![one.clone()],
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !types.iter().any(|allowed| allowed == kind) {
        return Err(format!("{value} is not {types:?}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{value} is none of {allowed:?}"));
    }
    for item in value.as_array().into_iter().flatten() {
        matches(root, &schema["items"], item)?;
    }
    if let (Some(object), Some(properties)) = (value.as_object(), schema["properties"].as_object())
    {
        for required in schema["required"].as_array().into_iter().flatten() {
            let name = required.as_str().unwrap_or_default();
            object.get(name).ok_or(format!("no {name} in {value}"))?;
        }
        for (name, value) in object {
            let schema = properties.get(name).ok_or(format!("{name} is new"))?;
            matches(root, schema, value)?;
        }
    }
    Ok(())
}

/// Checks an answer against what is described for its route and status.
fn as_described(root: &Value, method: &str, path: &str, answer: &Response) {
    let operation = &root["paths"][path][method.to_lowercase()];
    let mut response = &operation["responses"][answer.status.to_string()];
    if let Some(name) = response["$ref"].as_str() {
        let found = root.pointer(name.trim_start_matches('#'));
        response = found.unwrap_or_else(|| panic!("no {name}"));
    }
    assert!(response.is_object(), "{method} {path}: {answer:?}");
    for header in response["headers"].as_object().into_iter().flatten() {
        assert!(answer.header(header.0).is_some(), "{answer:?}");
    }
    let schema = &response["content"]["application/json"]["schema"];
    let matched = matches(root, schema, &answer.json());
    assert_eq!(matched, Ok(()), "{method} {path}: {answer:?}");
}

#[test]
fn every_answer_is_as_the_description_says() {
    let place = Place::new();
    let options = place.options(place.lock());
    let shop = start(&lockkeeper_lab::shop::ServeOptions { size: 1, ..options });
    let root = ask(&shop, "GET", "/openapi.json", "").json();
    let paths = root["paths"].as_object().expect("paths").clone();
    let mut operations = 0;
    for (path, methods) in &paths {
        for method in methods.as_object().expect("methods").keys() {
            let method = method.to_uppercase();
            // Once while there is some, once when there is none left.
            for _ in 0..2 {
                let answer = ask(&shop, &method, path, "");
                assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
                as_described(&root, &method, path, &answer);
            }
            for (body, query) in [("no", ""), (&*"x".repeat(5_000), ""), ("", "?no=1")] {
                let answer = ask(&shop, &method, &format!("{path}{query}"), body);
                as_described(&root, &method, path, &answer);
            }
            let elsewhere = [("Origin", "http://evil.example")];
            let answer = ask_with(&shop, &method, path, &elsewhere, "");
            assert_eq!(answer.status, 403, "{answer:?}");
            as_described(&root, &method, path, &answer);
            let described = &methods[method.to_lowercase()];
            for parameter in described["parameters"].as_array().into_iter().flatten() {
                let name = parameter["name"].as_str().expect("a name");
                let usual = &parameter["schema"]["default"];
                let answer = ask(&shop, &method, &format!("{path}?{name}={usual}"), "");
                assert_eq!(answer.status, 200, "{name}: {answer:?}");
                let answer = ask(&shop, &method, &format!("{path}?{name}=0"), "");
                assert_eq!(answer.status, 400, "{name}: {answer:?}");
            }
            operations += 1;
        }
    }
    assert_eq!(operations, ROUTES.len() + 3);
}

#[test]
fn answers_name_the_instance_what_is_left_and_the_token() {
    let place = Place::new();
    let options = place.options(place.lock());
    let (one, other) = (start(&options), start(&options));
    let sold = ask(&one, "GET", "/inventory/sale", "").json();
    assert_eq!(sold["result"], "sold");
    assert_eq!(sold["item"], "inventory001");
    assert_eq!(sold["remaining"], 4_999);
    assert_eq!(sold["port"], one.opened().port);
    // Tickets come from the same stock, orders from another.
    let ticket = ask(&other, "GET", "/inventory/saleTicket", "").json();
    assert_eq!(ticket["remaining"], 4_998);
    assert_eq!(ticket["port"], other.opened().port);
    assert!(ticket["token"].as_u64() > sold["token"].as_u64());
    let order = ask(&other, "GET", "/order/submitOrder", "").json();
    assert_eq!(
        (&order["item"], &order["remaining"]),
        (&"1001".into(), &4_999.into())
    );
    let unlocked = ask(&one, "POST", "/redisLock/saleGoods", "").json();
    assert_eq!(unlocked["token"], Value::Null);
    assert_eq!(unlocked["item"], "good:1");
}
