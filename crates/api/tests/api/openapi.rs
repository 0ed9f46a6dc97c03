//! The description of the API, and the pages.

use axum::http::StatusCode;
use serde_json::Value;

use super::{Api, echo};

#[test]
fn the_api_is_what_it_was() {
    insta::with_settings!({ sort_maps => true }, {
        insta::assert_json_snapshot!("openapi", serde_json::to_value(milepost_api::openapi_document()).unwrap());
    });
}

#[tokio::test]
async fn the_description_is_served() {
    let api = Api::new().await;
    let served = api.get("/api/v1/openapi.json").await;
    assert_eq!(served.body, serde_json::to_value(milepost_api::openapi_document()).unwrap());
    assert!(served.body["openapi"].as_str().unwrap().starts_with("3.1"));
}

/// Programs are made from it, and their functions are named by these.
#[test]
fn every_call_has_a_name_of_its_own() {
    let document = serde_json::to_value(milepost_api::openapi_document()).unwrap();
    let paths = document["paths"].as_object().unwrap().values();
    let mut names: Vec<&str> = paths
        .flat_map(|path| path.as_object().unwrap().values())
        .filter_map(|call| call["operationId"].as_str())
        .collect();
    let count = names.len();
    assert!(count >= 25);
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

/// A fixed word beside a name is a name, too: whatever can be done with any name can be done with that one.
#[test]
fn no_fixed_word_hides_a_name() {
    let document = serde_json::to_value(milepost_api::openapi_document()).unwrap();
    let paths = document["paths"].as_object().unwrap();
    for (named, calls) in paths {
        let parts: Vec<&str> = named.split('/').collect();
        // Ids and digests are never words.
        let by_name = |part: &&str| ["{ref}", "{tag}", "{name}", "{queue}", "{step_id}"].contains(part);
        let Some(place) = parts.iter().position(by_name) else { continue };
        for (fixed, own) in paths {
            let words: Vec<&str> = fixed.split('/').collect();
            let beside = words.len() == parts.len()
                && !words[place].starts_with('{')
                && (0..parts.len()).all(|at| at == place || words[at] == parts[at]);
            for method in calls.as_object().unwrap().keys().filter(|_| beside) {
                assert!(own.get(method).is_some(), "{method} {named} does not reach `{}`", words[place]);
            }
        }
    }
}

/// Every reference of the document points at something in it.
#[test]
fn the_description_is_whole() {
    let document = serde_json::to_value(milepost_api::openapi_document()).unwrap();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(references.len() > 50);
    for reference in references {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} points nowhere");
    }
}

fn collect<'v>(value: &'v Value, references: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match (name.as_str(), value) {
            ("$ref", Value::String(reference)) => references.push(reference),
            _ => collect(value, references),
        }),
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

#[tokio::test]
async fn the_pages_need_nobody_else() {
    let api = Api::new().await;
    let mut document = echo();
    document["name"] = "<b>bold</b>".into();
    let answer = api.post("/api/v1/runs", &serde_json::json!({ "document": document })).await;
    let hostile = answer.status == StatusCode::CREATED;
    api.engine.flush_projections().await;
    for path in ["/", "/docs"] {
        let page = api.get(path).await;
        assert_eq!(page.status, StatusCode::OK);
        let text = page.body.as_str().unwrap();
        assert!(!text.contains("src=\"http") && !text.contains("href=\"http"), "{path} asks somebody else");
        assert!(!hostile || !text.contains("<b>bold"), "{path} shows what somebody wrote as HTML");
    }
}
