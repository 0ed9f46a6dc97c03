//! What others write, fuzzed: documents, expressions, templates, patches, merges. Nothing panics, and what is taken is the same
//! when it is read again. How it is run for longer: `milepost_fuzz`.

use std::hash::Hash;
use std::path::Path;
use std::sync::Arc;

use milepost_core::document::{self, Merged, load, load_all, load_stored, merge, patch};
use milepost_core::expression::{Budget, Scope, StepOutputs};
use milepost_core::limits::Limits;
use milepost_core::plan::StepIndex;
use milepost_fuzz::Grammar;
use serde_json::{Value, json};

const DOCUMENT: &str =
    r#"{"name":"t","steps":{"a":{"input":{"l":[1,2.5],"n":1},"skill":"echo"},"b":{"depends_on":["a"],"skill":"x"}}}"#;

const YAML: Grammar = Grammar {
    pairs: &[("[", "]"), ("{a: ", "}"), ("\"", "\""), ("- ", "\n"), ("a: &a [", "]")],
    words: &[
        "*a",
        "&a ",
        "steps:\n",
        "  ",
        "? ",
        "|\n",
        "<<: ",
        "!!str ",
        "---\n",
        "${{ payload }}",
        "input: ",
        "skill: x",
    ],
};

const EXPRESSION: Grammar = Grammar {
    pairs: &[("(", ")"), ("[", "]"), ("{'k': ", "}"), ("not (", ")"), ("-(", ")"), ("(", " | list)"), ("(", ") ~ ''")],
    words: &[
        "payload",
        "payload.l",
        "payload.s",
        ".m",
        " | sort",
        " | unique",
        " | length",
        " | string",
        " * 1000",
        " ~ ",
        " + ",
        " == ",
        " in ",
        " < ",
        "[1:]",
        "[::-1]",
        "[0]",
        " if 1 else ",
        " is odd",
        " and ",
        " // ",
        " ** ",
        " % ",
        "range(9)",
        "dict(a=1)",
        " | map('upper')",
        " | join('x')",
        " | replace('a', 'aa')",
        " | groupby('k')",
        " | zip(payload.l)",
        " | chain([1])",
        " | sum(start='')",
        " | round",
        " | int",
        " | default(1)",
        "none",
        "'x'",
    ],
};

fn fuzz<O: Hash>(name: &str, grammar: &Grammar, check: impl Fn(&str) -> O) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    milepost_fuzz::run(name, &corpus, grammar, |input| check(&String::from_utf8_lossy(input)));
}

/// Reads a document as a server does. The outcome is how many there are, or what is wrong first.
fn read(source: &str) -> Result<usize, Option<&'static str>> {
    let limits = Limits::default();
    match load_all(source, &limits) {
        Ok(all) => {
            for loaded in &all {
                let again = load_stored(&loaded.canonical).unwrap_or_else(|problems| panic!("{problems:?}: {source}"));
                assert_eq!(again.hash, loaded.hash);
                assert!(loaded.canonical.len() <= limits.document_bytes);
            }
            Ok(all.len())
        }
        Err(problems) => {
            let bytes: usize = problems.iter().map(|problem| problem.message.len() + problem.path.len()).sum();
            assert!(bytes <= 512 * 1024, "{bytes} bytes of problems");
            Err(problems.first().map(|problem| problem.code))
        }
    }
}

#[test]
fn documents() {
    fuzz("documents", &Grammar::JSON, read);
}

#[test]
fn yaml() {
    fuzz("yaml", &YAML, read);
}

struct NoSteps;

impl StepOutputs for NoSteps {
    fn output(&self, _: StepIndex) -> Option<&Arc<Value>> {
        None
    }
}

/// Renders an input. The outcome is how large it is, or about where the words of the error begin to differ.
fn rendered(input: &Value) -> Result<usize, Option<String>> {
    let limits = Limits { expression_fuel: 2000, step_fuel: 10_000, ..Limits::default() };
    let document = json!({"name": "t", "steps": {"a": {"skill": "x", "input": input}}});
    let plan = document::load_value(&document, &limits).map_err(|problems| Some(problems[0].code.to_owned()))?.plan;
    let payload = Arc::new(json!({
        "n": 3, "s": "text", "l": [3, "x", 2.5, {"k": [1]}, {"k": "z"}, null], "m": {"b": 1, "a": {"k": []}}, "e": "",
    }));
    let null = Arc::new(Value::Null);
    let template = &plan.steps[0].input;
    // A rendering has a budget of its own.
    let budgets: [Budget; 3] = std::array::from_fn(|_| Budget::new(limits.input_bytes, &limits));
    let scope = |budget| Scope { payload: &payload, run: &null, steps: &NoSteps, item: None, index: None, budget };
    let _ = template.placeholders(&scope(&budgets[0]));
    match template.render(&scope(&budgets[1])) {
        Ok(value) => {
            let again = template.render(&scope(&budgets[2])).ok();
            assert_eq!(again.as_ref(), Some(&value), "the same scope has the same value");
            Ok(value.to_string().len())
        }
        Err(error) => Err(error.message.rsplit_once("`: ").map(|(_, reason)| reason.chars().take(20).collect())),
    }
}

#[test]
fn expressions() {
    fuzz("expressions", &EXPRESSION, |source| rendered(&json!({"x": format!("${{{{ {source} }}}}")})));
}

#[test]
fn templates() {
    let grammar = Grammar { pairs: &[("${{ ", " }}"), ("[", "]"), ("{\"a\":", "}")], ..EXPRESSION };
    fuzz("templates", &grammar, |source| rendered(&serde_json::from_str(source).unwrap_or_else(|_| json!([source]))));
}

#[test]
fn patches() {
    let limits = Limits::default();
    fuzz("patches", &Grammar::JSON, |source| {
        let operations: Value = serde_json::from_str(source).ok()?;
        Some(match patch(DOCUMENT, &operations, &limits) {
            Ok(loaded) => Ok(load(&loaded.canonical, &limits).map(|again| again.hash == loaded.hash).ok()),
            Err(error) => Err(error.reason().chars().take(40).collect::<String>()),
        })
    });
}

#[test]
fn merges() {
    let limits = Limits::default();
    let base: Value = serde_json::from_str(DOCUMENT).expect("this is JSON");
    let patched = |operations: &Value| {
        let loaded = patch(DOCUMENT, operations, &limits).ok()?;
        serde_json::from_str::<Value>(&loaded.canonical).ok()
    };
    fuzz("merges", &Grammar::JSON, |source| {
        let sides: Value = serde_json::from_str(source).ok()?;
        let (ours, theirs) = (patched(sides.get(0)?)?, patched(sides.get(1)?)?);
        Some(match merge(&base, &ours, &theirs, &limits) {
            Merged::Clean(loaded) => Ok(load_stored(&loaded.canonical).is_ok()),
            Merged::Conflicts(conflicts) => Err(conflicts.list.len()),
        })
    });
}
