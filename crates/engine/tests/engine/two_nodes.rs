//! Two nodes on one database: any of them takes any command, the one that has a run's steps in hand goes on with it.

use std::sync::Arc;

use milepost_core::status::RunStatus;
use milepost_engine::{Config, Engine, EngineError, NewRun};

use crate::support::*;

on! {
    embedded: [
        signals_from_both_nodes_are_all_heard,
        a_wait_is_answered_through_another_node,
        a_step_is_cancelled_through_another_node,
        the_same_request_to_two_nodes_is_one_run,
        a_pause_through_another_node_holds_back_steps,
        a_node_that_dies_is_replaced_by_one_that_had_sent_a_signal,
        children_on_two_nodes_end_together,
        a_child_ends_on_a_node_that_knows_its_parent_from_before,
        a_run_is_not_taken_from_a_node_that_works_on_it,
        what_a_node_does_not_know_is_read_before_it_is_refused,
        what_a_node_ended_before_it_died_is_projected_by_the_owner,
        a_signal_through_a_node_without_the_skill_leaves_the_step_to_one_that_has_it,
        of_two_who_saw_the_same_run_one_is_heard,
    ],
    postgres: [a_child_ends_on_a_node_that_knows_its_parent_from_before, of_two_who_saw_the_same_run_one_is_heard, signals_from_both_nodes_are_all_heard, a_wait_is_answered_through_another_node, a_step_is_cancelled_through_another_node, the_same_request_to_two_nodes_is_one_run]
}

async fn two(home: &Home, gate: &Gate) -> (Engine, Engine) {
    (home.open(config().gate(gate)).await, home.open(config().gate(gate)).await)
}

async fn signals_from_both_nodes_are_all_heard(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    let waits: Vec<String> = (0..10).map(|n| format!("w{n}: {{skill: wait, input: {{signal: s{n}}}}}")).collect();
    let document = format!("{{name: many, steps: {{{}}}}}", waits.join(", "));
    let (a, b) = (Arc::new(a), Arc::new(b));
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(start(&a, &document, NewRun::default()).await);
    }
    let mut senders = Vec::new();
    for run in &runs {
        for n in 0..10 {
            let (engine, run) = (if n % 2 == 0 { a.clone() } else { b.clone() }, *run);
            senders.push(tokio::spawn(async move { send(&engine, run, &format!("s{n}")).await }));
        }
    }
    for sender in senders {
        sender.await.unwrap();
    }
    for run in &runs {
        assert_eq!(ended(&b, *run).await, RunStatus::Completed);
        let accepted = types(a.store(), *run).await.iter().filter(|name| *name == "SignalAccepted").count();
        assert_eq!(accepted, 10);
    }
    a.flush_projections().await;
    for run in runs {
        sound(&b, run).await;
    }
    healthy(a.store()).await;
}

async fn a_wait_is_answered_through_another_node(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    let document = r#"
name: both
steps:
  long: {skill: gate, input: {}}
  wait: {skill: wait, input: {signal: go}}
  after: {skill: noop, depends_on: [wait]}
  end: {skill: noop, depends_on: [after, long]}
"#;
    let id = start(&a, document, NewRun::default()).await;
    gate.arrival().await;
    send(&b, id, "go").await;
    // The node that has the run goes on with it, although nobody told it.
    within(async {
        while !log(a.store(), id)
            .await
            .iter()
            .any(|event| event.event_type == "StepCompleted" && event.step_id.as_deref() == Some("after"))
        {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    gate.let_through(1);
    assert_eq!(ended(&a, id).await, RunStatus::Completed);
    b.flush_projections().await;
    sound(&a, id).await;
    healthy(a.store()).await;
}

async fn a_child_ends_on_a_node_that_knows_its_parent_from_before(home: Home) {
    let (a, b) = two(&home, &Gate::new()).await;
    a.deploy("{name: inner, steps: {w: {skill: wait, input: {signal: end}}}}").await.unwrap();
    let document = r#"
name: outer
steps:
  first: {skill: wait, input: {signal: go}}
  child: {skill: workflow, depends_on: [first], input: {ref: inner}}
"#;
    let id = start(&a, document, NewRun::default()).await;
    send(&b, id, "hello").await;
    // From here on what the other node has at hand is from before the child.
    send(&a, id, "go").await;
    let child = log(a.store(), id).await.iter().rev().find_map(|event| {
        let data: serde_json::Value = serde_json::from_str(event.data.as_str()).unwrap();
        data["child_run_id"].as_str().map(|child| child.parse().unwrap())
    });
    send(&b, child.expect("the child has begun"), "end").await;
    assert_eq!(ended(&b, id).await, RunStatus::Completed);
    healthy(a.store()).await;
}

async fn a_step_is_cancelled_through_another_node(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    for (signal, expected) in [("CANCEL", RunStatus::Cancelled), ("TERMINATE", RunStatus::Terminated)] {
        let id = start(&a, "{name: c, steps: {a: {skill: gate, input: {}}}}", NewRun::default()).await;
        gate.arrival().await;
        send(&b, id, signal).await;
        assert_eq!(ended(&b, id).await, expected);
        gate.emptied().await;
        a.flush_projections().await;
        sound(&b, id).await;
    }
    // The room that the steps had is free again.
    gate.let_through(300);
    let wide = r#"{name: w, steps: {a: {skill: gate, foreach: "${{ range(300) }}", input: {}}}}"#;
    assert_eq!(run(&a, wide, NewRun::default()).await.1, RunStatus::Completed);
    healthy(a.store()).await;
}

async fn a_pause_through_another_node_holds_back_steps(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    let document = "{name: p, steps: {a: {skill: gate, input: {}}, b: {skill: noop, depends_on: [a]}}}";
    let id = start(&a, document, NewRun::default()).await;
    gate.arrival().await;
    send(&b, id, "PAUSE").await;
    gate.let_through(1);
    event(&a, id, "StepCompleted").await;
    assert_eq!(types(a.store(), id).await.iter().filter(|name| *name == "StepStarted").count(), 1);
    send(&b, id, "RESUME").await;
    assert_eq!(ended(&b, id).await, RunStatus::Completed);
    a.flush_projections().await;
    sound(&b, id).await;
}

/// The run stays with the node that carries out its step, so its death is seen.
async fn a_node_that_dies_is_replaced_by_one_that_had_sent_a_signal(home: Home) {
    let gate = Gate::new();
    let config = || Config { node_lease_ms: 100, ..config() };
    let a = home.open(config().gate(&gate)).await;
    let b = home.open(config().gate(&gate)).await;
    let document = "{name: d, steps: {a: {skill: gate, input: {}}, w: {skill: wait, input: {signal: go}}}}";
    let id = start(&a, document, NewRun::default()).await;
    gate.arrival().await;
    send(&b, id, "go").await;
    assert_eq!(a.store().head(ORG, id).await.unwrap().unwrap().owner, Some(a.node()));
    drop(a);
    gate.arrival().await;
    gate.let_through(1);
    assert_eq!(ended(&b, id).await, RunStatus::Completed);
    sound(&b, id).await;
}

async fn children_on_two_nodes_end_together(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    a.deploy("{name: child, steps: {w: {skill: wait, input: {signal: go}}, e: {skill: noop, depends_on: [w]}}}")
        .await
        .unwrap();
    let document = r#"{name: parent, steps: {c: {skill: workflow, foreach: "${{ range(10) }}", input: {ref: child}}}}"#;
    let id = start(&a, document, NewRun::default()).await;
    let children: Vec<_> = within(async {
        loop {
            let open = a.store().open_runs(None, 100).await.unwrap();
            let children: Vec<_> = open.iter().filter(|run| run.parent_run == Some(id)).map(|run| run.run).collect();
            if children.len() == 10 {
                return children;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (a, b) = (Arc::new(a), Arc::new(b));
    let mut senders = Vec::new();
    for (n, child) in children.into_iter().enumerate() {
        let engine = if n % 2 == 0 { a.clone() } else { b.clone() };
        senders.push(tokio::spawn(async move { send(&engine, child, "go").await }));
    }
    for sender in senders {
        sender.await.unwrap();
    }
    assert_eq!(ended(&a, id).await, RunStatus::Completed);
    a.flush_projections().await;
    sound(&b, id).await;
    healthy(a.store()).await;
}

async fn the_same_request_to_two_nodes_is_one_run(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    for round in 0..10 {
        let new = || NewRun { request_id: Some(format!("{round}")), ..NewRun::default() };
        let document = "{name: once, steps: {a: {skill: noop}}}";
        let (one, other) =
            within(async { tokio::join!(a.start_document(document, new()), b.start_document(document, new())) }).await;
        let (one, other) = (one.unwrap(), other.unwrap());
        assert_eq!(one.run, other.run);
        assert_ne!(one.existing, other.existing);
        ended(&a, one.run).await;
    }
}

async fn a_run_is_not_taken_from_a_node_that_works_on_it(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    let document = r#"
name: mine
steps:
  long: {skill: gate, input: {}}
  w: {skill: wait, input: {signal: go}}
  then: {skill: gate, depends_on: [w], input: {n: 2}}
"#;
    let id = start(&a, document, NewRun::default()).await;
    gate.arrival().await;
    send(&b, id, "go").await;
    gate.arrival().await;
    let workers: Vec<_> = log(a.store(), id)
        .await
        .iter()
        .filter(|event| event.event_type == "StepStarted")
        .filter_map(|event| event.data.to_value().get("worker").cloned())
        .collect();
    assert!(workers.len() == 2 && workers[0] == workers[1], "{workers:?}");
    gate.let_through(2);
    assert_eq!(ended(&a, id).await, RunStatus::Completed);
}

/// A node that has an old state at hand looks again before it says no.
async fn what_a_node_does_not_know_is_read_before_it_is_refused(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    let id = start(&a, "{name: s, steps: {w: {skill: wait, input: {signal: go}}}}", NewRun::default()).await;
    send(&a, id, "unheard of").await;
    send(&b, id, "PAUSE").await;
    // The other way round: the sender has seen more than this node.
    let seen = b.summary(id).await.unwrap().last_event_seq;
    within(a.signal_if(id, Engine::new_signal("RESUME"), Some(seen))).await.unwrap();
    send(&b, id, "TERMINATE").await;
    let late = a.signal(id, Engine::new_signal("go")).await;
    assert!(matches!(&late, Err(EngineError::Rejected(why)) if why.code == "run_ended"), "{late:?}");
}

/// Whatever each node has at hand: what counts is the log.
async fn of_two_who_saw_the_same_run_one_is_heard(home: Home) {
    let gate = Gate::new();
    let (a, b) = two(&home, &gate).await;
    let id = start(&a, "{name: s, steps: {w: {skill: wait, input: {signal: go}}}}", NewRun::default()).await;
    for round in 0..20 {
        let seen = a.store().head(ORG, id).await.unwrap().unwrap().last_seq;
        let send = |engine| Engine::signal_if(engine, id, Engine::new_signal("seen"), Some(seen));
        let answers = within(futures::future::join_all([&a, &b, &a, &b].map(send))).await;
        let heard: Vec<_> = answers.iter().filter_map(|answer| answer.as_ref().ok()).collect();
        assert!(matches!(heard[..], [one] if one.last_seq == seen + 1), "round {round}: {answers:?}");
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        assert!(
            refused.clone().all(|why| matches!(why, EngineError::Moved { last_seq, .. } if *last_seq == seen + 1)),
            "round {round}: {answers:?}"
        );
    }
    assert_eq!(types(a.store(), id).await.iter().filter(|name| *name == "SignalAccepted").count(), 20);
}

/// The owner never hears of the end that another node wrote, and that one dies before it can project it.
async fn what_a_node_ended_before_it_died_is_projected_by_the_owner(home: Home) {
    let gate = Gate::new();
    let a = home.open(Config { node_lease_ms: 100, ..config() }.gate(&gate)).await;
    let id = start(&a, "{name: t, steps: {a: {skill: gate, input: {}}}}", NewRun::default()).await;
    gate.arrival().await;
    a.flush_projections().await;
    let b = home.open(config().gate(&gate)).await;
    send(&b, id, "TERMINATE").await;
    drop(b);
    within(async {
        while a.store().head(ORG, id).await.unwrap().unwrap().owner.is_some() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
    gate.emptied().await;
    sound(&a, id).await;
    healthy(a.store()).await;
}

async fn a_signal_through_a_node_without_the_skill_leaves_the_step_to_one_that_has_it(home: Home) {
    let gate = Gate::new();
    let a = home.open(Config { node_lease_ms: 100, ..config() }.gate(&gate)).await;
    let b = home.open(config()).await;
    let document =
        "{name: k, steps: {w: {skill: wait, input: {signal: go}}, g: {skill: gate, depends_on: [w], input: {}}}}";
    let id = start(&a, document, NewRun::default()).await;
    a.flush_projections().await;
    send(&b, id, "go").await;
    gate.arrival().await;
    gate.let_through(1);
    assert_eq!(ended(&a, id).await, RunStatus::Completed);
    b.flush_projections().await;
    sound(&a, id).await;
    healthy(a.store()).await;
}
