//! Secrets reach the step that refers to them, and nothing that is kept of the run.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use milepost_core::status::RunStatus;
use milepost_engine::secrets::{SecretAccess, SecretsConfig};
use milepost_engine::skills::{LogLine, LogStream, SkillContext, SkillError};
use milepost_engine::{Config, Engine, NewRun};
use serde_json::{Value, json};

use crate::support::{Home, ORG, config, on, run, within};

on! {
    embedded: [
        a_step_has_its_secrets_and_nobody_else,
        what_a_step_tells_of_its_secrets_is_redacted,
        a_step_without_its_secret_does_not_begin,
        an_http_step_names_its_secrets,
        a_value_that_looks_like_a_placeholder_is_sent_as_it_is,
    ],
    postgres: [what_a_step_tells_of_its_secrets_is_redacted]
}

const VALUE: &str = "hunter2 \"and\" more";

async fn open(home: &Home, more: impl FnOnce(Config) -> Config) -> Engine {
    let keys = "0a".repeat(32).parse().unwrap();
    let secrets = SecretsConfig { keys, ..SecretsConfig::default() };
    let engine = home.open(more(Config { secrets, ..config() })).await;
    engine.secrets().set(ORG, "audio/api-key", VALUE, &SecretAccess::default()).await.unwrap();
    engine
}

async fn a_step_has_its_secrets_and_nobody_else(home: Home) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let see = seen.clone();
    let engine = open(&home, |config| {
        config.skill("see", move |context: SkillContext, _: Value| {
            let secrets = format!("{} {:?} {:?}", context.step_id, context.secret("KEY"), context.secret("OTHER"));
            see.lock().unwrap().push(secrets);
            async { Ok(json!({})) }
        })
    })
    .await;
    let document = "
name: s
steps:
  a: {skill: see, secrets: {KEY: 'secret://audio/api-key'}}
  b: {skill: see, depends_on: [a]}
";
    let (_, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    assert_eq!(*seen.lock().unwrap(), [format!("a {:?} None", Some(VALUE)), "b None None".to_owned()]);
}

async fn what_a_step_tells_of_its_secrets_is_redacted(home: Home) {
    let heard: Arc<Mutex<String>> = Arc::default();
    let hear = heard.clone();
    let engine = open(&home, |config| {
        let told = Arc::new(move |line: LogLine| hear.lock().unwrap().push_str(&line.text));
        let config = Config { log: Some(told), ..config };
        config
            .skill("tell", |context: SkillContext, _: Value| async move {
                let key = context.secret("KEY").unwrap().to_owned();
                context.log(LogStream::Log, format!("the key is {key}"));
                Ok(json!({ "key": key, "in": [{ "a text": format!("<{key}>") }], "n": 1 }))
            })
            .skill("fails", |context: SkillContext, _: Value| async move {
                let key = context.secret("KEY").unwrap();
                let encoded = base64::engine::general_purpose::STANDARD.encode(format!("me:{key}"));
                Err::<Value, _>(SkillError::fatal(key, format!("{key} and {encoded} are wrong")))
            })
            .skill("panics", |context: SkillContext, _: Value| async move {
                let key = context.secret("KEY").unwrap();
                std::panic::panic_any(format!("with {key}"));
                #[expect(unreachable_code, reason = "it must have a type")]
                Ok(json!({}))
            })
    })
    .await;
    let document = "
name: told
on_failure: continue
defaults: {secrets: {KEY: 'secret://audio/api-key'}}
steps:
  fails: {skill: fails}
  panics: {skill: panics}
  shell: {skill: shell, input: {command: 'echo \"$KEY\" >&2; echo \"got $KEY\"; env'}}
  tell: {skill: tell}
";
    let (id, status) = run(&engine, document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Failed);
    let mut kept = serde_json::to_string(&within(engine.logs(id, None, None, 1000)).await.unwrap()).unwrap();
    for event in engine.store().events(ORG, id, 0, 1000).await.unwrap() {
        kept.push_str(event.data.as_str());
    }
    kept.push_str(&serde_json::to_string(&engine.run(id).await.unwrap()).unwrap());
    kept.push_str(&heard.lock().unwrap());
    let encoded = base64::engine::general_purpose::STANDARD.encode(format!("me:{VALUE}"));
    for secret in ["hunter2", &encoded[8..24]] {
        assert!(!kept.contains(secret), "{kept}");
    }
    let view = engine.run(id).await.unwrap();
    let step = |id: &str| view.steps.iter().find(|step| step.step_id == id).unwrap();
    let error = |id: &str| step(id).error.clone().unwrap();
    assert!(error("fails").message.starts_with("[redacted: KEY] and "), "{:?}", error("fails"));
    assert_eq!(error("fails").code, "[redacted: KEY]");
    assert_eq!(error("panics").message, "the skill panicked: with [redacted: KEY]");
    let output = step("tell").output.clone().unwrap().to_value();
    assert_eq!(output, json!({"key": "[redacted: KEY]", "in": [{"a text": "<[redacted: KEY]>"}], "n": 1}));
    assert!(kept.contains("the key is [redacted: KEY]"));
    assert!(kept.contains("KEY=[redacted: KEY]"), "the program had it");
}

async fn a_step_without_its_secret_does_not_begin(home: Home) {
    let engine = open(&home, |config| {
        config.skill("never", |_, _: Value| async { panic!("it must not be called") as Result<Value, SkillError> })
    })
    .await;
    let others = SecretAccess { queues: None, workflows: Some(vec!["other".to_owned()]) };
    engine.secrets().set(ORG, "denied", "value", &others).await.unwrap();
    for (reference, code) in [("secret://nothing", "unknown_secret"), ("secret://denied", "secret_denied")] {
        let document = format!(
            "{{name: x, steps: {{a: {{skill: never, retry: {{max_attempts: 3}}, secrets: {{K: '{reference}'}}}}}}}}"
        );
        let (id, status) = run(&engine, &document, NewRun::default()).await;
        assert_eq!(status, RunStatus::Failed);
        let step = &engine.run(id).await.unwrap().steps[0];
        assert_eq!((step.error.as_ref().unwrap().code.as_str(), step.logical_attempt), (code, 1));
    }
}

type Seen = Arc<Mutex<Vec<String>>>;

/// A server that keeps the address, the key and the body of what it is sent, and answers with them.
async fn echoing() -> (String, Seen, tokio::task::JoinHandle<std::io::Result<()>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen: Seen = Arc::default();
    let see = seen.clone();
    let answer = move |request: axum::extract::Request| async move {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 10_000).await.unwrap();
        let said = format!("{} {:?} {}", parts.uri, parts.headers["x-key"], String::from_utf8_lossy(&body));
        see.lock().unwrap().push(said.clone());
        said
    };
    let server = tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    (url, seen, server)
}

async fn an_http_step_names_its_secrets(home: Home) {
    let (url, seen, server) = echoing().await;
    let engine = open(&home, |config| config).await;
    let document = format!(
        "
name: h
steps:
  a:
    skill: http
    secrets: {{KEY: 'secret://audio/api-key'}}
    input:
      method: POST
      url: '{url}/?k={{{{secret:KEY}}}}'
      headers: {{x-key: 'Bearer {{{{secret:KEY}}}}'}}
      body: {{key: '{{{{secret:KEY}}}}'}}
"
    );
    let (id, status) = run(&engine, &document, NewRun::default()).await;
    assert_eq!(status, RunStatus::Completed);
    let sent = seen.lock().unwrap().join("\n");
    assert!(sent.contains("k=hunter2%20%22and%22%20more") && sent.contains("Bearer hunter2"), "{sent}");
    assert!(sent.ends_with(r#"{"key":"hunter2 \"and\" more"}"#), "{sent}");
    let kept = serde_json::to_string(&engine.step(id, "a").await.unwrap()).unwrap();
    assert!(kept.contains("Bearer {{secret:KEY}}") && kept.contains("[redacted: KEY]"), "{kept}");
    assert!(!kept.contains("hunter2"), "{kept}");
    server.abort();
}

/// Whoever writes a payload, or what an earlier step returns, does not choose where secrets go.
async fn a_value_that_looks_like_a_placeholder_is_sent_as_it_is(home: Home) {
    let (url, seen, server) = echoing().await;
    let engine = open(&home, |config| config).await;
    let document = format!(
        "
name: h
defaults: {{secrets: {{KEY: 'secret://audio/api-key'}}}}
steps:
  before: {{skill: echo, input: '${{{{ payload }}}}'}}
  literal:
    skill: http
    input:
      method: POST
      url: '{url}/literal?c=${{{{ payload.comment }}}}&k={{{{secret:KEY}}}}'
      headers: {{x-key: '${{{{ payload.comment }}}} {{{{secret:KEY}}}} ${{{{ payload.comment }}}}'}}
      body: {{text: 'New: ${{{{ payload.comment }}}}', all: '${{{{ payload }}}}', key: '{{{{secret:KEY}}}}'}}
  output:
    skill: http
    input:
      method: POST
      url: '{url}/output'
      headers: {{x-key: '${{{{ steps.before.output.comment }}}}'}}
      body: '${{{{ steps.before.output.comment }}}} ${{{{ steps.before.output.comment }}}} {{{{secret:KEY}}}}'
  items:
    skill: http
    foreach: '${{{{ [payload.comment, payload.open] }}}}'
    input: {{method: POST, url: '{url}/items', headers: {{x-key: none}}, body: '${{{{ item }}}}secret:KEY}}}}'}}
  whole: {{skill: http, input: '${{{{ payload.request }}}}'}}
"
    );
    let comment = "{{secret:KEY}}";
    let request =
        json!({"method": "POST", "url": format!("{url}/whole"), "headers": {"x-key": comment}, "body": [comment]});
    let payload = json!({"comment": comment, "open": "{{", "request": request});
    let new = NewRun { payload: milepost_core::json::Json::of(&payload), ..NewRun::default() };
    let (id, status) = run(&engine, &document, new).await;
    assert_eq!(status, RunStatus::Completed, "{:?}", engine.run(id).await.unwrap().steps);
    let sent = |path: &str| {
        let seen = seen.lock().unwrap();
        let mut of: Vec<String> = seen.iter().filter(|said| said.starts_with(path)).cloned().collect();
        of.sort();
        of.join("\n")
    };
    let literal = sent("/literal");
    assert!(literal.starts_with("/literal?c={{secret:KEY}}&k=hunter2%20"), "{literal}");
    assert!(literal.contains(r#""{{secret:KEY}} hunter2 \"and\" more {{secret:KEY}}""#), "{literal}");
    assert!(literal.contains(r#""text":"New: {{secret:KEY}}""#), "{literal}");
    assert!(literal.contains(r#""key":"hunter2 \"and\" more""#), "{literal}");
    assert_eq!(literal.matches("hunter2").count(), 3, "{literal}");
    let output = sent("/output");
    assert!(output.ends_with("{{secret:KEY}} {{secret:KEY}} hunter2 \"and\" more"), "{output}");
    assert_eq!(output.matches("hunter2").count(), 1, "{output}");
    for path in ["/items", "/whole"] {
        let other = sent(path);
        assert!(other.contains("{{secret:KEY}}") && !other.contains("hunter2"), "{other}");
    }
    server.abort();
}
