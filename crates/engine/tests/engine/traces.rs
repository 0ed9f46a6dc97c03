//! Traces of runs, as a collector receives them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_core::trace::{SpanId, TraceContext};
use milepost_engine::telemetry::OtlpConfig;
use milepost_engine::{Config, NewRun};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::support::{
    self, Gate, Home, WithGate as _, config, ended, event, log, payload, run, send, send_to, start, within,
};

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const RETRY: &str = "defaults: {retry: {max_attempts: 2, backoff_ms: 1}}";

/// A collector that answers as it is told, and with 200 once nothing is left of that.
struct Collector {
    address: String,
    received: mpsc::UnboundedReceiver<(HeaderMap, Value)>,
    answers: Answers,
}

type Answers = Arc<Mutex<VecDeque<StatusCode>>>;
type Shared = (Answers, mpsc::UnboundedSender<(HeaderMap, Value)>);

async fn take(State((answers, received)): State<Shared>, headers: HeaderMap, body: String) -> StatusCode {
    let answer = answers.lock().unwrap().pop_front().unwrap_or(StatusCode::OK);
    if answer.is_success() {
        received.send((headers, serde_json::from_str(&body).unwrap())).unwrap();
    }
    answer
}

impl Collector {
    async fn open() -> Collector {
        let (sender, received) = mpsc::unbounded_channel();
        let answers = Answers::default();
        let router = Router::new().route("/v1/traces", post(take)).with_state((answers.clone(), sender));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        Collector { address, received, answers }
    }

    fn answers(&self, statuses: &[u16]) {
        let statuses = statuses.iter().map(|status| StatusCode::from_u16(*status).unwrap());
        self.answers.lock().unwrap().extend(statuses);
    }

    fn config(&self) -> Config {
        Config { traces: Some(OtlpConfig::new(&self.address).unwrap()), ..config() }
    }

    /// All spans that have come so far.
    fn spans(&mut self) -> Vec<Span> {
        let mut spans = Vec::new();
        while let Ok((_, request)) = self.received.try_recv() {
            spans.extend(spans_of(&request));
        }
        spans
    }
}

fn spans_of(request: &Value) -> Vec<Span> {
    let spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    spans.iter().map(|span| Span(span.clone())).collect()
}

struct Span(Value);

impl Span {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    fn name(&self) -> &str {
        self.text("name")
    }

    fn attribute(&self, key: &str) -> Option<&str> {
        let value =
            &self.0["attributes"].as_array().unwrap().iter().find(|attribute| attribute["key"] == key)?["value"];
        value["stringValue"].as_str().or_else(|| value["intValue"].as_str())
    }

    /// In milliseconds.
    fn length(&self) -> i64 {
        let at = |key| self.text(key).parse::<i64>().unwrap();
        (at("endTimeUnixNano") - at("startTimeUnixNano")) / 1_000_000
    }

    fn is_error(&self) -> bool {
        self.0["status"]["code"] == 2
    }

    /// `a 1/1 completed`.
    fn told(&self) -> String {
        let word = |key| self.attribute(key).unwrap_or("?").to_owned();
        let attempt = format!("{}/{}", word("milepost.logical_attempt"), word("milepost.engine_attempt"));
        match self.attribute("milepost.status") {
            Some(status) => format!("{} {status}", self.name()),
            None => format!("{} {attempt} {}", self.name(), word("milepost.outcome")),
        }
    }
}

fn told(spans: &[Span]) -> Vec<String> {
    spans.iter().map(Span::told).collect()
}

fn find<'s>(spans: &'s [Span], told: &str) -> &'s Span {
    spans.iter().find(|span| span.told() == told).unwrap_or_else(|| panic!("no `{told}` among {:?}", self::told(spans)))
}

fn traced(traceparent: &str) -> NewRun {
    NewRun { trace: Some(traceparent.parse().unwrap()), ..NewRun::default() }
}

async fn a_run_is_a_span_and_so_is_each_attempt_of_its_steps(home: Home) {
    let mut collector = Collector::open().await;
    let engine = home.open(collector.config()).await;
    let document = format!(
        "{{name: t, {}, steps: {{a: {{skill: fail, input: {{times: 1, code: broke}}}}, \
         s: {{skill: sleep, input: {{ms: 30}}, depends_on: [a]}}}}}}",
        RETRY
    );
    let new = NewRun { request_id: Some("order 7".to_owned()), ..traced(CALLER) };
    let (id, status) = run(&engine, &document, new).await;
    assert_eq!(status, RunStatus::Completed);
    let log = log(engine.store(), id).await;
    let node = engine.node();
    engine.shutdown().await;
    let (headers, request) = collector.received.try_recv().unwrap();
    assert_eq!(headers["content-type"], "application/json");
    let resource = json!([
        {"key": "service.name", "value": {"stringValue": "milepost"}},
        {"key": "service.version", "value": {"stringValue": env!("CARGO_PKG_VERSION")}},
        {"key": "service.instance.id", "value": {"stringValue": node.to_string()}},
    ]);
    assert_eq!(request["resourceSpans"][0]["resource"]["attributes"], resource);
    let spans = spans_of(&request);
    assert_eq!(told(&spans), ["t completed", "a 1/1 failed", "a 2/1 completed", "s 1/1 completed"]);
    let [whole, failed, again, sleep] = &spans[..] else { panic!() };
    assert!(spans.iter().all(|span| span.text("traceId") == "4bf92f3577b34da6a3ce929d0e0e4736"));
    assert_eq!(whole.text("parentSpanId"), "00f067aa0ba902b7");
    assert_eq!(whole.text("spanId"), SpanId::of_run(id).to_string());
    assert!([failed, again, sleep].iter().all(|span| span.text("parentSpanId") == whole.text("spanId")));
    assert_eq!(again.text("spanId"), SpanId::of_attempt(id, "a", 2, 1).to_string());
    assert_eq!(whole.attribute("milepost.run_id"), Some(id.to_string().as_str()));
    assert_eq!(whole.attribute("milepost.request_id"), Some("order 7"));
    assert_eq!((failed.is_error(), failed.attribute("error.type")), (true, Some("broke")));
    assert_eq!(failed.0["status"]["message"], "attempt 1 failed, as it was asked to");
    assert_eq!((failed.attribute("milepost.skill"), again.is_error()), (Some("fail"), false));
    // The times are those of the log.
    let nanoseconds = |row: &milepost_core::record::EventRow| format!("{}000", row.emitted_at.0);
    assert_eq!(whole.text("startTimeUnixNano"), nanoseconds(&log[0]));
    assert_eq!(whole.text("endTimeUnixNano"), nanoseconds(log.last().unwrap()));
    let started = log.iter().find(|row| row.event_type == "StepStarted").unwrap();
    assert_eq!(failed.text("startTimeUnixNano"), nanoseconds(started));
    assert!((30..10_000).contains(&sleep.length()), "{}", sleep.length());
}

async fn a_failed_run_says_why(home: Home) {
    let mut collector = Collector::open().await;
    let engine = home.open(collector.config()).await;
    let document = "{name: t, steps: {a: {skill: fail, input: {code: broke}}, b: {skill: echo, input: '${{ payload.n }}'}, \
                    c: {skill: noop, depends_on: [a]}}}";
    let (id, _) = run(&engine, document, NewRun::default()).await;
    engine.shutdown().await;
    let spans = collector.spans();
    let whole = find(&spans, "t failed");
    // A run that nobody called is a trace of its own.
    assert_eq!(whole.text("traceId"), id.0.simple().to_string());
    assert!(whole.0.get("parentSpanId").is_none());
    assert!(whole.is_error());
    // One that could not even begin is there, one that was never tried is not.
    let unborn = find(&spans, "b 1/0 failed");
    assert_eq!((unborn.length(), unborn.is_error()), (0, true));
    assert!(!spans.iter().any(|span| span.name() == "c"));
}

async fn a_child_is_in_its_parents_trace(home: Home) {
    let mut collector = Collector::open().await;
    let engine = home.open(collector.config()).await;
    engine.deploy("{name: inner, steps: {i: {skill: noop}}}").await.unwrap();
    let document = "{name: outer, steps: {call: {skill: workflow, input: {ref: inner}}}}";
    let (id, _) = run(&engine, document, NewRun::default()).await;
    engine.shutdown().await;
    let spans = collector.spans();
    let (outer, inner) = (find(&spans, "outer completed"), find(&spans, "inner completed"));
    let (call, i) = (find(&spans, "call 1/1 completed"), find(&spans, "i 1/1 completed"));
    assert!(spans.iter().all(|span| span.text("traceId") == id.0.simple().to_string()));
    assert_eq!(call.text("parentSpanId"), outer.text("spanId"));
    assert_eq!(inner.text("parentSpanId"), call.text("spanId"));
    assert_eq!(i.text("parentSpanId"), inner.text("spanId"));
    assert_eq!(call.attribute("milepost.child_run_id"), inner.attribute("milepost.run_id"));
    assert_eq!(inner.attribute("milepost.parent_run_id"), Some(id.to_string().as_str()));
}

async fn items_are_parts_of_their_step_and_waits_are_spans(home: Home) {
    let mut collector = Collector::open().await;
    let engine = home.open(collector.config()).await;
    let document = "{name: t, steps: {each: {skill: noop, foreach: [1, 2]}, \
                    w: {skill: wait, input: {signal: go}, depends_on: [each]}}}";
    let id = start(&engine, document, NewRun::default()).await;
    send(&engine, id, "PAUSE").await;
    send(&engine, id, "RESUME").await;
    send(&engine, id, "go").await;
    ended(&engine, id).await;
    engine.shutdown().await;
    let spans = collector.spans();
    let (whole, each) = (find(&spans, "t completed"), find(&spans, "each 1/1 completed"));
    for item in ["each[0] 1/1 completed", "each[1] 1/1 completed"] {
        assert_eq!(find(&spans, item).text("parentSpanId"), each.text("spanId"));
    }
    assert_eq!(each.text("parentSpanId"), whole.text("spanId"));
    assert_eq!(each.attribute("milepost.items"), Some("2"));
    assert_eq!(find(&spans, "w 1/1 completed").attribute("milepost.signal"), Some("go"));
    let events: Vec<&str> =
        whole.0["events"].as_array().unwrap().iter().map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(events, ["RunStarted", "SignalAccepted", "RunPaused", "SignalAccepted", "RunResumed", "SignalAccepted"]);
}

async fn an_attempt_whose_node_died_is_a_span_of_its_own(home: Home) {
    let mut collector = Collector::open().await;
    let gate = Gate::new();
    let dying = home.open(Config { node_lease_ms: 50, ..config().gate(&gate) }).await;
    let id = start(&dying, "{name: t, steps: {g: {skill: gate}}}", NewRun::default()).await;
    gate.arrival().await;
    let (store, node) = (dying.store().clone(), dying.node());
    drop(dying);
    store.leave(node).await.unwrap();
    let engine = home.open(Config { node_lease_ms: 50, ..collector.config().gate(&gate) }).await;
    gate.arrival().await;
    gate.let_through(2);
    ended(&engine, id).await;
    engine.shutdown().await;
    let spans = collector.spans();
    assert_eq!(told(&spans), ["t completed", "g 1/1 lost", "g 1/2 completed"]);
    assert_eq!((spans[1].is_error(), spans[1].attribute("error.type")), (true, Some("worker_lost")));
}

async fn a_reopened_run_adds_what_is_new(home: Home) {
    let mut collector = Collector::open().await;
    let engine = home.open(collector.config()).await;
    let document = "{name: t, steps: {a: {skill: noop}, b: {skill: fail, input: {times: 1}, depends_on: [a]}}}";
    let (id, _) = run(&engine, document, NewRun::default()).await;
    send_to(&engine, id, "RETRY_STEP", "b").await;
    event(&engine, id, "RunCompleted").await;
    engine.shutdown().await;
    let spans = collector.spans();
    let all = ["t failed", "a 1/1 completed", "b 1/1 failed", "t completed", "b 2/1 completed"];
    assert_eq!(told(&spans), all);
    let (first, second) = (&spans[0], &spans[3]);
    assert_eq!(second.text("parentSpanId"), first.text("spanId"));
    assert_eq!(spans[4].text("parentSpanId"), second.text("spanId"));
}

async fn what_the_caller_does_not_record_is_not_exported(home: Home) {
    let mut collector = Collector::open().await;
    let engine = home.open(collector.config()).await;
    let document = "{name: t, steps: {a: {skill: noop}}}";
    run(&engine, document, traced(&CALLER.replace("-01", "-00"))).await;
    let (id, _) = run(&engine, document, NewRun::default()).await;
    engine.shutdown().await;
    let spans = collector.spans();
    assert_eq!(told(&spans), ["t completed", "a 1/1 completed"]);
    assert_eq!(spans[0].attribute("milepost.run_id"), Some(id.to_string().as_str()));
}

async fn of_a_large_run_the_first_spans_and_the_failures_are_kept(home: Home) {
    let mut collector = Collector::open().await;
    let engine = home.open(collector.config()).await;
    let document = "{name: t, on_failure: continue, steps: {each: {skill: fail, foreach: '${{ range(1100) | list }}', \
                    input: {times: '${{ 1 if item == 1050 else 0 }}'}}}}";
    run(&engine, document, NewRun::default()).await;
    engine.shutdown().await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 1000);
    // 1,100 items, their step and the run's own span are 1,102.
    assert_eq!(spans[0].attribute("milepost.spans_left_out"), Some("102"));
    find(&spans, "each[1050] 1/1 failed");
    find(&spans, "each 1/1 failed");
}

async fn spans_arrive_although_the_collector_is_busy_at_first(home: Home) {
    let mut collector = Collector::open().await;
    collector.answers(&[503, 429]);
    let engine = home.open(collector.config()).await;
    let document = "{name: t, steps: {a: {skill: noop}}}";
    run(&engine, document, NewRun::default()).await;
    let (_, request) = within(collector.received.recv()).await.unwrap();
    assert_eq!(told(&spans_of(&request)), ["t completed", "a 1/1 completed"]);
    // What is refused is not tried again, and what follows is sent.
    collector.answers(&[400]);
    run(&engine, document, NewRun::default()).await;
    while !collector.answers.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let (id, _) = run(&engine, document, NewRun::default()).await;
    engine.shutdown().await;
    let spans = collector.spans();
    assert_eq!(spans[0].attribute("milepost.run_id"), Some(id.to_string().as_str()));
}

async fn a_collector_that_is_down_is_nothing_to_a_run(home: Home) {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let traces = OtlpConfig::new(&format!("http://{gone}")).unwrap();
    let engine = home.open(Config { traces: Some(traces), ..config() }).await;
    for _ in 0..20 {
        let (id, status) = run(&engine, "{name: t, steps: {a: {skill: noop}}}", NewRun::default()).await;
        assert_eq!(status, RunStatus::Completed);
        support::one_history(engine.store(), id).await;
    }
    // Nobody who ends waits for it: a try that failed is not repeated then.
    let begin = std::time::Instant::now();
    engine.shutdown().await;
    assert!(begin.elapsed() < std::time::Duration::from_secs(3), "{:?}", begin.elapsed());
}

/// Answers with the header that it was called with.
async fn echo(headers: HeaderMap) -> String {
    headers["traceparent"].to_str().unwrap().to_owned()
}

async fn skills_pass_the_trace_on(home: Home) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router = Router::new().route("/", post(echo));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let mine = |run: RunId, step| {
        let span = SpanId::of_attempt(run, step, 1, 1);
        TraceContext::of_span(run, Some(CALLER.parse().unwrap()), span).to_string()
    };
    let config = config().skill("tell", |context, _: Value| async move { Ok(context.traceparent()) });
    let engine = home.open(config).await;
    let document = "{name: t, steps: {h: {skill: http, input: {method: post, url: '${{ payload.url }}'}}, \
                    own: {skill: http, input: {method: post, url: '${{ payload.url }}', headers: {TraceParent: mine}}}, \
                    sh: {skill: shell, input: {command: 'echo \"$TRACEPARENT\"'}}, tell: {skill: tell}}}";
    let new = NewRun { trace: Some(CALLER.parse().unwrap()), ..payload(&json!({ "url": url })) };
    let (id, _) = run(&engine, document, new).await;
    let view = engine.run(id).await.unwrap();
    assert_eq!(support::output(&view, "h")["body"], mine(id, "h"));
    assert_eq!(support::output(&view, "own")["body"], "mine");
    assert_eq!(support::output(&view, "sh")["stdout"], mine(id, "sh"));
    assert_eq!(support::output(&view, "tell"), mine(id, "tell"));
    engine.shutdown().await;
}

support::on! {
    embedded: [
        a_run_is_a_span_and_so_is_each_attempt_of_its_steps,
        a_failed_run_says_why,
        a_child_is_in_its_parents_trace,
        items_are_parts_of_their_step_and_waits_are_spans,
        an_attempt_whose_node_died_is_a_span_of_its_own,
        a_reopened_run_adds_what_is_new,
        what_the_caller_does_not_record_is_not_exported,
        of_a_large_run_the_first_spans_and_the_failures_are_kept,
        spans_arrive_although_the_collector_is_busy_at_first,
        a_collector_that_is_down_is_nothing_to_a_run,
        skills_pass_the_trace_on,
    ],
    postgres: [a_run_is_a_span_and_so_is_each_attempt_of_its_steps]
}
