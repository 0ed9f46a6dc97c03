use milepost_core::document;
use serde_json::json;

use super::*;

fn diff(from: Value, to: Value) -> Diff {
    serde_json::from_value(serde_json::to_value(document::diff(&from, &to)).unwrap()).unwrap()
}

#[track_caller]
fn check(from: Value, to: Value, expected: &str) {
    assert_eq!(shown(&diff(from, to), false), expected.strip_prefix('\n').unwrap());
}

#[test]
fn steps_are_told_one_by_one() {
    check(
        json!({"name": "t", "on_failure": "stop", "steps": {
            "brief": {"skill": "text.brief", "input": {"topic": "tea", "n": 1}, "depends_on": ["a", "b"]},
            "old": {"skill": "x", "input": {}},
        }}),
        json!({"name": "t", "on_failure": "continue", "steps": {
            "brief": {"skill": "text.brief", "input": {"topic": "rum", "n": null, "odd key": true}, "depends_on": ["b", "c", "d"]},
            "cut": {"skill": "video.cut", "depends_on": ["brief"]},
        }}),
        r#"
~ settings
  - on_failure: "stop"
  + on_failure: "continue"

~ step brief
  - depends_on: a
  + depends_on: c, d
  - input.n: 1
  + input.n: null
  + input."odd key": true
  - input.topic: "tea"
  + input.topic: "rum"

+ step cut
  + depends_on: ["brief"]
  + skill: "video.cut"

- step old
  - input: {}
  - skill: "x"

1 step added, 1 removed, 1 changed; 1 setting changed
"#,
    );
}

#[test]
fn long_texts_are_compared_line_by_line() {
    let prompt = |word: &str| {
        let text = format!("You write.\nBe {word}.\nOne\nTwo\nThree\nFour\nFive\n");
        json!({"name": "t", "steps": {"a": {"skill": "x", "input": {"prompt": text}}}})
    };
    check(
        prompt("brief"),
        prompt("kind"),
        r"
~ step a
    input.prompt:
      You write.
  -   Be brief.
  +   Be kind.
      One
      Two
      Three
      … 2 lines

1 step changed
",
    );
}

#[test]
fn large_values_are_spread_out() {
    let words =
        |last: &str| json!({"steps": {"a": {"words": ["a word that is long", "another word that is long", last]}}});
    check(
        words("and one more to make it longer"),
        words("and another one to make it longer"),
        r#"
~ step a
    words:
      [
        "a word that is long",
        "another word that is long",
  -     "and one more to make it longer"
  +     "and another one to make it longer"
      ]

1 step changed
"#,
    );
}

#[test]
fn the_order_of_a_set_is_nothing_to_worry_about() {
    let step = |ids: Value| json!({"steps": {"a": {"depends_on": ids}}});
    let text = shown(&diff(step(json!(["b", "c"])), step(json!(["c", "b"]))), false);
    assert!(text.contains("depends_on: the same in another order"), "{text}");
}

#[test]
fn what_is_the_same_says_so() {
    check(json!({"name": "t"}), json!({"name": "t"}), "\nno differences\n");
}

#[test]
fn counts_say_what_they_count() {
    let steps = |ids: &[&str]| json!({"steps": ids.iter().map(|id| ((*id).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>()});
    assert_eq!(summary(&diff(steps(&["a", "b"]), steps(&["c"]))), "1 step added, 2 removed");
    assert_eq!(summary(&diff(steps(&[]), steps(&["a", "b"]))), "2 steps added");
    assert_eq!(summary(&diff(json!({}), json!({"a": 1, "b": 2}))), "2 settings changed");
}

#[test]
fn colours_are_for_terminals() {
    let from = json!({"steps": {"a": {"skill": "x"}}});
    let to = json!({"steps": {"a": {"skill": "y"}}});
    let text = shown(&diff(from, to), true);
    assert!(text.contains("\u{1b}[31m- skill: \"x\"\u{1b}[0m"), "{text:?}");
    assert!(text.contains("\u{1b}[32m+ skill: \"y\"\u{1b}[0m"), "{text:?}");
}
