//! Each problem with its exact place.

use super::*;

fn check(source: &str, expected: &[&str]) {
    let problems = load(source, &Limits::default()).expect_err(source);
    assert_eq!(shown(&problems), expected.iter().map(|line| format!("{line}\n")).collect::<String>(), "{source}");
}

fn codes(source: &str, limits: &Limits) -> Vec<&'static str> {
    load(source, limits).expect_err(source).iter().map(|problem| problem.code).collect()
}

#[test]
fn text_that_is_no_yaml() {
    check(
        "name: x\nsteps: {a: {skill: noop}\nfoo: ]",
        &["not_yaml 3:1 /steps: not YAML: invalid indentation in flow construct"],
    );
}

#[test]
fn nothing_at_all() {
    check("# nothing\n", &["empty_document there is no document in it"]);
}

#[test]
fn an_unknown_and_a_missing_key() {
    check(
        "name: x\nstep:\n  a: {skill: noop}\n",
        &[
            "missing_key 1:1 the key `steps` is missing",
            "unknown_key 2:1 /step: there is no key `step` here; known are kind, name, version, description, params, defaults, on_failure, concurrency, approval, self_patch, steps, changes, tunables (did you mean `steps`?)",
        ],
    );
}

#[test]
fn a_document_that_is_no_map() {
    check("- a\n- b\n", &["wrong_type 1:1 a map is needed here, not a list"]);
}

#[test]
fn a_misspelt_key_of_a_step() {
    check(
        "name: x\nsteps:\n  a:\n    skil: noop\n    input: 1\n",
        &[
            "unknown_key 4:5 /steps/a/skil: there is no key `skil` here; known are skill, description, input, depends_on, when, foreach, concurrency, retry, timeout_ms, heartbeat_timeout_ms, cache, runtime, queue, push, secrets, env (did you mean `skill`?)",
            "missing_key 4:5 /steps/a: the key `skill` is missing",
        ],
    );
}

#[test]
fn values_of_the_wrong_type() {
    check(
        "name: x\nsteps: {a: {skill: noop, timeout_ms: soon, retry: [1]}}",
        &[
            "wrong_type 2:38 /steps/a/timeout_ms: `timeout_ms` is a whole number, not a text",
            "wrong_type 2:51 /steps/a/retry: a map is needed here, not a list",
        ],
    );
}

#[test]
fn a_version_that_is_a_number() {
    check(
        "name: x\nversion: 1.0\nsteps: {a: {skill: noop}}",
        &["wrong_type 2:10 /version: `version` is a text, not a number (write it in quotes)"],
    );
}

#[test]
fn values_outside_what_is_allowed() {
    check(
        "name: x\non_failure: contine\nsteps: {a: {skill: noop, retry: {max_attempts: 101}}}",
        &[
            "bad_value 2:13 /on_failure: `on_failure` is one of stop, continue, not `contine` (did you mean `continue`?)",
            "bad_value 3:48 /steps/a/retry/max_attempts: `max_attempts` is a whole number from 1 to 100, not 101",
        ],
    );
}

#[test]
fn a_key_that_appears_twice() {
    check("name: x\nname: y\nsteps: {a: {skill: noop}}", &["duplicate_key 2:1 /name: the key `name` appears twice"]);
}

#[test]
fn a_step_that_appears_twice() {
    check(
        "name: x\nsteps:\n  a: {skill: noop}\n  a: {skill: echo}\n",
        &["duplicate_step 4:3 /steps/a: the step `a` appears twice"],
    );
}

#[test]
fn list_steps_without_id_or_twice() {
    check(
        "name: x\nsteps:\n- {id: a, skill: noop}\n- {skill: noop}\n- {id: a, skill: noop}\n",
        &[
            "missing_key 4:3 /steps/1: the key `id` is missing",
            "duplicate_step 5:8 /steps/a: the step `a` appears twice",
        ],
    );
}

#[test]
fn steps_that_do_not_exist() {
    check(
        concat!(
            "name: x\n",
            "steps:\n",
            "  brief: {skill: noop}\n",
            "  b:\n",
            "    skill: noop\n",
            "    depends_on: [breif, brief]\n",
            "    input: \"${{ steps.breif.output }}\"\n",
        ),
        &[
            "unknown_step 6:18 /steps/b/depends_on/0: there is no step `breif` (did you mean `brief`?)",
            "unknown_step 7:12 /steps/b/input: there is no step `breif` (did you mean `brief`?)",
        ],
    );
}

#[test]
fn circles_with_their_way_around() {
    check(
        concat!(
            "name: x\n",
            "steps:\n",
            "  a: {skill: noop, depends_on: [c]}\n",
            "  b: {skill: noop, depends_on: [a]}\n",
            "  c: {skill: noop, input: '${{ steps.b.output }}'}\n",
            "  d: {skill: noop, depends_on: [d]}\n",
        ),
        &[
            "cycle 3:3 /steps/a: steps wait for each other: a → c → b → a",
            "cycle 6:3 /steps/d: steps wait for each other: d → d",
        ],
    );
}

#[test]
fn expressions_that_do_not_parse() {
    check(
        concat!(
            "name: x\n",
            "steps:\n",
            "  a:\n",
            "    skill: noop\n",
            "    input:\n",
            "      k: [1, '${{ 1 + }}']\n",
            "    when: payload.x\n",
        ),
        &[
            "bad_expression 6:14 /steps/a/input/k/1: `1 +`: unexpected end of input, expected expression",
            "bad_expression 7:11 /steps/a/when: exactly one `${{ … }}` is needed here, with nothing around it (write `${{ payload.x }}`)",
        ],
    );
}

#[test]
fn names_that_are_not_known_here() {
    check(
        concat!(
            "name: x\n",
            "steps:\n",
            "  a:\n",
            "    skill: noop\n",
            "    input: '${{ paylod.x }}'\n",
            "    when: '${{ item }}'\n",
            "    foreach: '${{ index }}'\n",
        ),
        &[
            "unknown_name 5:12 /steps/a/input: there is no name `paylod`; known are `payload`, `run`, `steps.<id>.output`, `steps.<id>.artifacts` and, with `foreach`, `item` and `index` (did you mean `payload`?)",
            "unknown_name 6:11 /steps/a/when: `item` is known only in the `input` of a step with `foreach`",
            "unknown_name 7:14 /steps/a/foreach: `index` is known only in the `input` of a step with `foreach`",
        ],
    );
}

#[test]
fn an_expression_that_is_not_closed() {
    check(
        "name: x\nsteps: {a: {skill: noop, input: 'a ${{ b'}}",
        &["bad_expression 2:33 /steps/a/input: `${{` is not closed by `}}`"],
    );
}

#[test]
fn an_integer_that_would_be_rounded() {
    check(
        "name: x\nsteps: {a: {skill: noop, input: 9007199254740992}}",
        &[
            "integer_too_large 2:33 /steps/a/input: the integer 9007199254740992 is beyond ±(2^53 − 1) (write it in quotes)",
        ],
    );
}

#[test]
fn half_characters() {
    check(
        r#"{"name": "x", "steps": {"a": {"skill": "noop", "input": ["\ud83d\ude00", {"k": "\ud800"}]}}}"#,
        &[
            "bad_value 1:80 /steps/a/input/1/k: a text has half of a surrogate pair (`\\ud800`); send the whole character",
        ],
    );
    check(
        r#"{"name": "x", "steps": {"a": {"skill": "noop", "input": {"\uDC00": 1}}}}"#,
        &["bad_value 1:58 /steps/a/input: a text has half of a surrogate pair (`\\ud800`); send the whole character"],
    );
    let problems = load("name: x\nsteps: {a: {skill: noop, input: \"\\ud800\"}}", &Limits::default()).unwrap_err();
    assert_eq!((problems.len(), problems[0].code), (1, "not_yaml"));
}

#[test]
fn long_keys() {
    let key = "k".repeat(1025);
    let json = format!(r#"{{"name": "x", "steps": {{"a": {{"skill": "noop", "input": {{"{key}": 1}}}}}}}}"#);
    let yaml = format!("name: x\nsteps: {{a: {{skill: noop, input: {{? {key} : 1}}}}}}");
    let fits = json.replace(&key, &key[1..]);
    for source in [&json, &yaml] {
        let problems = load(source, &Limits::default()).unwrap_err();
        assert_eq!((problems.len(), problems[0].code), (1, "key_too_long"));
        assert!(problems[0].path.len() < 400 && problems[0].message.len() < 100);
    }
    let value = |text: &str| serde_json::from_str(text).unwrap();
    assert_eq!(load_value(&value(&json), &Limits::default()).unwrap_err()[0].code, "key_too_long");
    assert!(load(&fits, &Limits::default()).is_ok() && load_value(&value(&fits), &Limits::default()).is_ok());
}

#[test]
fn json_has_places_too() {
    check(
        concat!(
            "{\"name\": \"x\",\n",
            " \"steps\": {\"a\": {\"skill\": \"noop\", \"input\": [1, 9007199254740993]},\n",
            "  \"a\": {}}}",
        ),
        &[
            "integer_too_large 2:48 /steps/a/input/1: the integer 9007199254740993 is beyond ±(2^53 − 1) (write it in quotes)",
            "duplicate_step 3:3 /steps/a: the step `a` appears twice",
        ],
    );
}

#[test]
fn a_schema_that_is_none() {
    check(
        "name: x\nparams: {type: 7}\nsteps: {a: {skill: noop}}",
        &[
            "bad_schema 2:9 /params: not a JSON Schema: 7 is not valid under any of the schemas listed in the 'anyOf' keyword",
        ],
    );
}

#[test]
fn a_schema_that_refers_elsewhere() {
    check(
        "name: x\nparams: {$ref: 'http://example.com/x.json'}\nsteps: {a: {skill: noop}}",
        &[
            "bad_schema 2:9 /params: not a JSON Schema: `http://example.com/x.json` refers to another document, and those are not read; put the schema into `$defs`",
        ],
    );
}

#[test]
fn names_with_odd_characters() {
    check(
        "name: my flow\nsteps: {1a: {skill: 'no op'}}",
        &[
            "bad_name 1:7 /name: the name may not have ' ' in it",
            "bad_name 2:9 /steps/1a: the step id `1a` may have only letters, digits, `_` and `-`, and may not start with a digit",
            "bad_name 2:21 /steps/1a/skill: the skill may not have ' ' in it",
        ],
    );
}

#[test]
fn a_name_with_a_slash_and_no_steps() {
    check(
        "name: a/b\nsteps: {}",
        &[
            "bad_name 1:7 /name: the name may not have `/` in it; letters, digits, `.`, `_` and `-` may be used",
            "bad_value 2:8 /steps: a document has at least one step",
        ],
    );
}

#[test]
fn nesting_beyond_the_limit() {
    let deep = format!("name: x\nsteps: {{a: {{skill: noop, input: {}1{}}}}}", "[".repeat(70), "]".repeat(70));
    check(
        &deep,
        &[
            "too_deep 2:94 /steps/a/input/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0/0: the document is nested deeper than 64 levels",
        ],
    );
}

#[test]
fn aliases_that_multiply() {
    let more = (1..12).map(|i| format!("  l{i}: &l{i} [*l{0}, *l{0}, *l{0}, *l{0}, *l{0}, *l{0}]\n", i - 1));
    let laughs = format!("name: x\nlol:\n  l0: &l0 ha\n{}", more.collect::<String>());
    check(
        &laughs,
        &["bad_alias 9:7 /lol: aliases make the document too large; 100000 values with 4194304 bytes may be copied"],
    );
}

#[test]
fn an_alias_inside_itself() {
    check("name: &n [*n]\n", &["bad_alias 1:11 /name/0: the alias stands inside what it refers to"]);
}

#[test]
fn keys_that_are_no_texts_and_merge_keys() {
    check(
        "name: x\nsteps: {a: {skill: noop, input: {<<: {b: 1}, 1: 2, [x]: 3}}}",
        &[
            "unknown_key 2:34 /steps/a/input/<<: YAML merge keys (`<<`) are not supported",
            r#"wrong_type 2:46 /steps/a/input/1: keys are texts; `1` is not one (write "1")"#,
            "wrong_type 2:54 /steps/a/input: keys are texts, not a list or a map",
        ],
    );
}

#[test]
fn tags() {
    check("name: !!str x\nsteps: {a: {skill: noop}}", &["bad_value 1:7 /name: YAML tags are not supported"]);
}

#[test]
fn inputs_of_built_in_skills() {
    check(
        concat!(
            "name: x\n",
            "steps:\n",
            "  a: {skill: sleep}\n",
            "  b: {skill: sleep, input: {ms: -1, sec: 1}}\n",
            "  c: {skill: shell, input: {}}\n",
            "  d: {skill: shell, input: {command: a, argv: [1]}}\n",
            "  e: {skill: http, input: {url: 1}}\n",
            "  f: {skill: wait, input: x}\n",
        ),
        &[
            "missing_key 3:6 /steps/a/input: the key `ms` is missing",
            "bad_value 4:33 /steps/b/input/ms: `ms` is a whole number of at least 0, not -1",
            "unknown_key 4:37 /steps/b/input/sec: there is no key `sec` here; known are ms",
            "missing_key 5:28 /steps/c/input: `command` or `argv` is missing",
            "bad_value 6:41 /steps/d/input/argv: `command` and `argv` exclude each other",
            "wrong_type 6:47 /steps/d/input/argv: `argv` is a list of texts, not a list",
            "wrong_type 7:33 /steps/e/input/url: `url` is a text, not a number",
            "wrong_type 8:27 /steps/f/input: a map is needed here, not a text",
        ],
    );
}

#[test]
fn concurrency_and_secrets() {
    check(
        concat!(
            "name: x\n",
            "concurrency: {key: '${{ steps.a.output }}', limit: 0}\n",
            "steps: {a: {skill: noop, secrets: {K: plain}}}",
        ),
        &[
            "unknown_name 2:20 /concurrency/key: `steps` is not known before the run starts",
            "bad_value 2:52 /concurrency/limit: `limit` is a whole number from 1 to 4294967295, not 0",
            "bad_value 3:39 /steps/a/secrets/K: `K`: a secret is referred to by `secret://…`; secrets themselves never stand in documents (keep it with `milepost secrets set NAME`, and write `secret://NAME` here)",
        ],
    );
}

/// Who writes a secret where its name belongs finds it in no message.
#[test]
fn secrets_and_variables_by_names_that_cannot_be() {
    let help = "(keep it with `milepost secrets set NAME`, and write `secret://NAME` here)";
    check(
        concat!(
            "name: x\n",
            "steps:\n",
            "  a: {skill: noop, secrets: {1K: 'secret://a', MILEPOST_DB: 'secret://a'}}\n",
            "  b: {skill: noop, secrets: {K: 'secret://s3cr3t!', L: 'secret://a@latest', M: 5}}\n",
            "  c: {skill: noop, env: [MILEPOST_SECRETS_KEY, A-B, OK]}\n",
        ),
        &[
            "bad_name 3:30 /steps/a/secrets/1K: `1K` cannot be an environment variable; it may have letters, digits and `_`, and no digit first",
            "bad_name 3:48 /steps/a/secrets/MILEPOST_DB: `MILEPOST_DB` is a name that Milepost keeps for itself; choose another",
            &format!(
                "bad_name 4:33 /steps/b/secrets/K: `K`: the name of the secret may have only letters, digits, `_`, `-`, `.`, and `/` between its parts {help}"
            ),
            &format!(
                "bad_name 4:56 /steps/b/secrets/L: `L`: after `@` stands the number of a version, as in `secret://audio/api-key@3` {help}"
            ),
            "wrong_type 4:80 /steps/b/secrets/M: `M` is a text, not a number (write it in quotes)",
            "bad_name 5:25 /steps/c/env: `MILEPOST_SECRETS_KEY` is a name that Milepost keeps for itself; choose another",
            "bad_name 5:25 /steps/c/env: `A-B` cannot be an environment variable; it may have letters, digits and `_`, and no digit first",
        ],
    );
}

#[test]
fn changes_and_tunables() {
    check(
        concat!(
            "name: x\n",
            "changes: {a: {merge: x}, b: {rebuild: [zz]}, c: {}}\n",
            "tunables: [{path: 1}]\n",
            "steps: {a: {skill: noop}}",
        ),
        &[
            "bad_value 2:22 /changes/a/merge: a JSON pointer starts with `/` (write `/x`)",
            "unknown_step 2:39 /changes/b/rebuild: there is no step `zz`",
            "bad_value 2:49 /changes/c: a change has exactly one of `merge`, `replace` and `rebuild`",
            "missing_key 3:12 /tunables/0: the key `type` is missing",
            "wrong_type 3:19 /tunables/0/path: `path` is a text, not a number (write it in quotes)",
        ],
    );
}

#[test]
fn pushes_that_lead_nowhere() {
    check(
        concat!(
            "name: x\n",
            "steps:\n",
            "  a: {skill: s, runtime: push}\n",
            "  b: {skill: s, runtime: push, push: {timeout_ms: 0}}\n",
            "  c: {skill: s, runtime: push, push: {url: 'https://u:hunter2@e.com'}}\n",
            "  d: {skill: s, push: {url: 'https://e.com'}}\n",
            "  e: {skill: wait, input: {signal: go}, runtime: push, push: {url: 'https://e.com'}}\n",
            "  f: {skill: s, runtime: push, push: {url: e.com, method: GET}}\n",
            "  g: {skill: s, runtime: push, push: 'https://e.com'}\n",
            "  h: {skill: s, runtime: push, push: {url: 'https://e.com'}, queue: q}\n",
            "  i: {skill: s, queue: 'push:e.com'}\n",
            "  j: {skill: s, runtime: push, push: {url: 'https://e.com', signing_secret: hunter2}}\n",
        ),
        &[
            "missing_key 3:6 /steps/a: `runtime: push` needs to know where to: `push: {url: https://…}`",
            "missing_key 4:32 /steps/b: `runtime: push` needs to know where to: `push: {url: https://…}`",
            "bad_value 4:51 /steps/b/push/timeout_ms: `timeout_ms` is a whole number from 1 to 600000, not 0",
            "bad_value 5:44 /steps/c/push/url: the url has credentials in it; name them under `secrets`, and the receiver is given them",
            "bad_value 6:17 /steps/d/push: `push` says where a step with `runtime: push` is sent to, and this step has another (add `runtime: push`, or remove `push`)",
            "bad_value 7:56 /steps/e/push: `push` says where a step is sent to, and this one is carried out by nobody",
            "bad_value 8:44 /steps/f/push/url: the url begins with https:// or http://",
            "unknown_key 8:51 /steps/f/push/method: there is no key `method` here; known are url, signing_secret, timeout_ms",
            "wrong_type 9:38 /steps/g/push: a map is needed here, not a text",
            "bad_value 10:62 /steps/h/queue: `queue` is for steps that workers take, and this one is pushed",
            "bad_name 11:24 /steps/i/queue: the queue may not begin with `push:`, which is for steps that are pushed",
            "bad_value 12:77 /steps/j/push/signing_secret: a secret is referred to by `secret://…`; secrets themselves never stand in documents",
        ],
    );
}

#[test]
fn expressions_beyond_the_limits() {
    let step = |input: &str| format!("name: x\nsteps: {{a: {{skill: noop, input: \"${{{{ {input} }}}}\"}}}}");
    assert_eq!(codes(&step(&"1".repeat(5000)), &Limits::default()), ["expression_too_long"]);
    assert_eq!(codes(&step(&"(".repeat(3000)), &Limits::default()), ["expression_too_deep"]);
}

#[test]
fn the_limits_hold_for_inline_documents() {
    let value = json!({"name": "x", "steps": {"a": {"skill": "noop", "input": [[1]]}}});
    let refused = |limits: Limits| load_value(&value, &limits).unwrap_err()[0].clone();
    assert_eq!(refused(Limits { document_bytes: 10, ..Limits::default() }).code, "document_too_large");
    let deep = refused(Limits { json_depth: 4, ..Limits::default() });
    assert_eq!((deep.code, &*deep.path, deep.line), ("too_deep", "/steps/a/input/0", None));
}

#[test]
fn a_problem_is_told_as_json() {
    let problems = load("name: x\nsteps: {a: {skil: noop}}", &Limits::default()).unwrap_err();
    let told = serde_json::to_value(&problems[1]).unwrap();
    assert_eq!(
        (&told["code"], &told["path"], &told["line"]),
        (&json!("unknown_key"), &json!("/steps/a/skil"), &json!(2))
    );
    assert_eq!((&told["column"], &told["suggestion"]), (&json!(13), &json!("did you mean `skill`?")));
}

#[test]
fn a_thousand_problems_are_enough() {
    let steps: String = (0..5000).map(|i| format!("  s{i}: {{skill: noop, depends_on: [x{i}]}}\n")).collect();
    assert_eq!(codes(&format!("name: x\nsteps:\n{steps}"), &Limits::default()).len(), 1000);
}
