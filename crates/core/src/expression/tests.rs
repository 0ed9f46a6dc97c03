use std::collections::HashMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Default)]
struct Outputs(HashMap<StepIndex, Arc<Value>>);

impl StepOutputs for Outputs {
    fn output(&self, step: StepIndex) -> Option<&Arc<Value>> {
        self.0.get(&step)
    }
}

const STEPS: [&str; 3] = ["a", "b", "a-b"];

fn find(id: &str) -> Result<StepIndex, CompileError> {
    let found = STEPS.iter().zip(0..).find(|(known, _)| **known == id).map(|(_, index)| index);
    found.ok_or_else(|| CompileError::new("unknown_step", format!("there is no step `{id}`")))
}

fn compile(source: &str) -> Result<Expression, CompileError> {
    Expression::compile(source, &Bindings::new(&Limits::default(), &find, true))
}

fn outputs() -> Outputs {
    let of_a = Arc::new(json!({"n": 3, "xs": [1, 2.5, "x"], "t": "text"}));
    Outputs(HashMap::from([(0, of_a), (2, Arc::new(json!([{"k v": null}])))]))
}

fn with_fuel(fuel: u64) -> Budget {
    Budget::new(usize::MAX, &Limits { expression_fuel: fuel, step_fuel: fuel, ..Limits::default() })
}

/// Evaluates an expression that sees nothing but its payload.
fn evaluate_over(expression: &Expression, payload: &Value) -> Result<Value, EvalError> {
    let (payload, null, outputs) = (Arc::new(payload.clone()), Arc::new(Value::Null), Outputs::default());
    let budget = with_fuel(100_000);
    expression.evaluate(&Scope {
        payload: &payload,
        run: &null,
        steps: &outputs,
        item: None,
        index: None,
        budget: &budget,
    })
}

fn evaluate_with_fuel(source: &str, fuel: u64) -> Result<Value, EvalError> {
    let payload = Arc::new(json!({"n": 2, "big": 9_007_199_254_740_991_i64, "f": 1.0, "e": {}, "ok": true}));
    let (run, item, outputs) = (Arc::new(json!({"id": "r"})), Arc::new(json!("it")), outputs());
    let budget = with_fuel(fuel);
    let scope =
        Scope { payload: &payload, run: &run, steps: &outputs, item: Some(&item), index: Some(7), budget: &budget };
    compile(source).unwrap().evaluate(&scope)
}

fn evaluate(source: &str) -> Result<Value, EvalError> {
    evaluate_with_fuel(source, Limits::default().expression_fuel)
}

fn yields(source: &str, value: Value) {
    let found = evaluate(source).unwrap_or_else(|error| panic!("{source}: {error}"));
    assert_eq!(found.to_string(), value.to_string(), "{source}");
}

fn fails(source: &str) -> String {
    evaluate(source).expect_err(source).message
}

#[test]
fn values_keep_their_types() {
    yields("payload.n", json!(2));
    yields("payload.n + 1", json!(3));
    yields("payload.f", json!(1.0));
    yields("payload.f * 2", json!(2.0));
    yields("payload.n / 2", json!(1.0));
    yields("payload.big | default(0)", json!(9_007_199_254_740_991_i64));
    yields("payload.ok and not false", json!(true));
    yields("steps.a.output.xs", json!([1, 2.5, "x"]));
    yields("steps.a.output.xs | list", json!([1, 2.5, "x"]));
    yields("steps['a-b'].output[0]['k v']", json!(null));
    yields("{'k v': steps['a-b'].output, 'n': -1}", json!({"k v": [{"k v": null}], "n": -1}));
    yields("[item, index, run.id]", json!(["it", 7, "r"]));
    yields("index", json!(7));
    yields("none", json!(null));
}

#[test]
fn jinja_does_what_jinja_does() {
    yields("steps.a.output.xs | length", json!(3));
    yields("payload.missing | default(3)", json!(3));
    yields("payload.missing is defined", json!(false));
    yields("payload.missing.deep if payload.missing is defined else 'no'", json!("no"));
    yields("'yes' if payload.n > 1 else 'no'", json!("yes"));
    yields("steps.a.output.t ~ '-' ~ payload.n", json!("text-2"));
    yields("range(3) | list", json!([0, 1, 2]));
    yields("steps.a.output.xs | map('string') | join(', ')", json!("1, 2.5, x"));
    yields("steps.a.output.xs[-1]", json!("x"));
    yields("steps.a.output.xs[1:]", json!([2.5, "x"]));
    yields("steps.a.output | tojson", json!("{\"n\":3,\"t\":\"text\",\"xs\":[1,2.5,\"x\"]}"));
    yields("'x' in steps.a.output.xs", json!(true));
    yields("steps.a.output.t | replace('t', 'T')", json!("TexT"));
    yields("dict(a=payload.n)", json!({"a": 2}));
    yields("payload.e or 'empty'", json!("empty"));
}

#[test]
fn what_is_undefined_is_named() {
    assert_eq!(fails("payload.x"), "cannot evaluate `${{ payload.x }}`: `payload.x` is undefined");
    assert!(fails("payload.x.y").contains("`payload.x.y` is undefined: there is no `x`"));
    assert!(fails("payload.x + 1").ends_with("`payload.x` is undefined"));
    assert!(fails("payload.n and payload.x.y").ends_with("`payload.x.y` is undefined: there is no `x`"));
    assert!(fails("steps.b.output").contains("`steps.b.output` is not available here"));
    assert!(fails("[steps.b.output.x]").contains("`steps.b.output.x` is not available here"));
    assert!(fails("[payload.x]").contains("`payload.x` is undefined"));
}

#[test]
fn products_are_what_they_were() {
    yields("2 * 3 * 4", json!(24));
    yields("(1 + 2) * (3 + 4) - 1", json!(20));
    yields("2 ** 3 * 2", json!(16));
    yields("-2 * 3", json!(-6));
    yields("[1, 2 * 2, {'a * b': 3 * 3}['a * b'] * 2]", json!([1, 4, 18]));
    yields("'a*' * 3", json!("a*a*a*"));
    yields("2 * [1, 2]", json!([1, 2, 1, 2]));
    yields("1.5 * 2", json!(3.0));
    yields("7 if 2 * 2 == 4 else 8 * 2", json!(7));
    yields("[3, 1 * 2] | sort | first * 10", json!(20));
    assert!(fails("payload.nope * 2").contains("`payload.nope` is undefined"));
    assert!(fails("'a' * 'b'").contains("strings can only be multiplied with integers"));
    assert_eq!(refused("_multiply(2, 3)").0, "unknown_name");
    yields("2 * (not (2)*(2) in [4])", json!(0));
    assert!(refused("2 * not (2)*(2) in [4]").1.contains("put it in brackets"));
}

#[test]
fn repeating_is_paid_for() {
    for source in [
        "2 in [1] * 100000000",
        "2 in 100000000 * [1]",
        "(steps.a.output.xs * 100000000) == (steps.a.output.xs * 100000000)",
        "'abcdefgh' * 10000000",
        "(range(10) * 10000000) | length",
    ] {
        assert!(fails(source).contains("more work"), "{source}");
    }
}

/// Nothing that costs is left to minijinja, wherever it stands.
#[test]
fn all_that_costs_is_paid_for_wherever_it_stands() {
    for around in [
        "not (@)",
        "(@) in [1] < 2",
        "(1 if @ else 2)(@)",
        "(@) + [1]",
        "1 < 2 in @",
        "1 < 2 < (@) | length",
        "@ if true else 1",
        "2 if @ else 1",
        "1 if false else @",
        "(@) | first",
        "payload.none | default(@)",
        "(@) is defined",
        "1 is eq(@)",
        "(@).a is undefined",
        "(@)[0]",
        "[1, 2][@]",
        "(@)[0:1]",
        "[1][(@)[0]:]",
        "[1][:(@)[0]]",
        "[1][::(@)[0]]",
        "range(@)",
        "dict(a=@)",
        "dict(odd=@)",
        "dict(*[@])",
        "[1] | sort(**{'reverse': @})",
        "[@]",
        "(1, @)",
        "{'a': @}",
        "{(@)[0]: 1}",
    ] {
        for costs in ["[1] * 100000000", "'x' * 100000000"] {
            let source = around.replace('@', costs);
            if around.starts_with("1 if false") {
                assert_eq!(evaluate(&source).ok(), None);
                continue;
            }
            assert!(fails(&source).contains("more work"), "{source}: {:?}", evaluate(&source));
        }
    }
}

#[test]
fn what_is_copied_compared_or_gone_over_is_paid_for_before() {
    let payload = json!({"s": "x".repeat(1_000_000), "l": vec!["y"; 200_000], "e": "", "m": {"a": 1}});
    let (s, l) = ("payload.s", "payload.l");
    for source in [
        vec![s; 400].join("~"),
        vec![s; 400].join("+"),
        format!("[{}] | length", vec![l; 300].join(", ")) + &" ~ payload.l".repeat(50),
        vec![l; 300].join(" ~ "),
        format!("({}) | length", vec![format!("({s} == {s})"); 120].join(" ~ ")),
        format!("[{}]", vec![format!("{s}[::-1]"); 100].join(", ")),
        format!("[{}]", vec![format!("{s}[500000 + 0]"); 150].join(", ")),
        format!("[{}]", vec![format!("({l} == {l})"); 100].join(", ")),
        format!("[{}]", vec![format!("('z' in {l})"); 100].join(", ")),
        format!("[{}]", vec![format!("('z' in {s})"); 150].join(", ")),
        format!("[{}]", vec![format!("({s} is upper)"); 150].join(", ")),
        format!("([{s}] * 100) | unique"),
        format!("([{l}] * 100000) | map('length') | sum ~ ([{l}] * 100) ~ ''"),
        format!("([{l}] * 1000) | string"),
        format!("([{l}] * 1000) | sort"),
        format!("([{l}] * 1000) | join"),
        format!("([{s}] * 1000) | sum(start='')"),
        format!("{s} | split('') | length ~ {s} | list | length ~ ({s} | split('x') | length)"),
        format!("([{l} | zip({s})] * 1000) | map('list') | list"),
        format!("([{l}[100000:]] * 1000) | map('first') | list ~ ([{l}[1:]] * 1000)"),
        format!("([{l} | chain({l})] * 1000) | map('last') | list"),
        format!("{{{}}}", vec![format!("({s}): 1"); 20].join(", ")),
        format!("range(*({l} * 100))"),
    ] {
        let expression = compile(&source).unwrap_or_else(|error| panic!("{source}: {}", error.message));
        let error = evaluate_over(&expression, &payload).expect_err(&source[..source.len().min(100)]);
        assert!(error.message.contains("more work"), "{source}: {error}");
    }
}

#[test]
fn expressions_of_one_value_share_its_work() {
    let (payload, null) = (Arc::new(json!({"s": "x".repeat(1_000_000)})), Arc::new(Value::Null));
    for (source, times) in [("payload.s[-1]", 200), ("payload.s == payload.s ~ ''", 60)] {
        let piece = || Part::Value(compile(source).unwrap());
        let template = Template::new(Part::list((0..times).map(|_| piece()).collect()));
        let (budget, outputs) = (Budget::new(1_000_000, &Limits::default()), Outputs::default());
        let scope = Scope { payload: &payload, run: &null, steps: &outputs, item: None, index: None, budget: &budget };
        let error = template.render(&scope).unwrap_err();
        assert!(error.message.contains("more work") && !error.too_large, "{error}");
    }
}

#[test]
fn large_values_are_looked_at_for_little() {
    let payload =
        json!({"l": vec![json!({"id": 1, "text": "a text of a few words"}); 200_000], "s": "x".repeat(4_000_000)});
    for (source, value) in [
        ("payload.l | length", json!(200_000)),
        ("payload.l | length > 5 and payload.l != []", json!(true)),
        ("payload.l[1].id + (payload.l | length)", json!(200_001)),
        ("payload.l[-1].id ~ payload.l[7].text", json!("1a text of a few words")),
        ("(payload.l | first).text | upper", json!("A TEXT OF A FEW WORDS")),
        ("payload.s | length", json!(4_000_000)),
        ("payload.s == 'x'", json!(false)),
    ] {
        assert_eq!(evaluate_over(&compile(source).unwrap(), &payload).unwrap(), value, "{source}");
    }
}

#[test]
fn what_minijinja_would_panic_at_has_a_value_or_an_error() {
    let payload = json!({"e": "", "n": [], "s": "abc", "l": [1, 2, 3], "i": i64::MIN});
    for (source, value) in [
        ("payload.e[::-1]", json!("")),
        ("payload.n[::-1]", json!([])),
        ("payload.s[::-1]", json!("cba")),
        ("payload.s[0:2:-1]", json!("")),
        ("payload.l[::-2]", json!([3, 1])),
        ("payload.l[5:0:-1]", json!([3, 2, 1])),
        ("payload.l[2:1:-1]", json!([3])),
        ("payload.l[::-9223372036854775807]", json!([3])),
        ("payload.l[::9223372036854775807]", json!([1])),
        ("payload.l[-9223372036854775807::-1]", json!([1])),
        ("4 is divisibleby(0)", json!(false)),
        ("4 is divisibleby(2)", json!(true)),
        ("4.5 is divisibleby(1.5)", json!(true)),
        ("payload.i is divisibleby(-1)", json!(true)),
    ] {
        assert_eq!(evaluate_over(&compile(source).unwrap(), &payload).unwrap(), value, "{source}");
    }
    let _ = evaluate_over(&compile("payload.l[::-9223372036854775807 - 1]").unwrap(), &payload);
}

#[test]
fn work_is_bounded() {
    assert!(fails("range(1000000000)").contains("too many elements"));
    assert!(fails(&format!("range(100000) | list {}", "| sort ".repeat(300))).contains("more work"));
    assert!(fails("('x' * 100000000) | upper").contains("more work"));
    assert!(fails("'x' * 100000000000").contains("more work"));
    assert!(fails("([range(100000) | list] * 100000) | list").contains("more work"));
    assert!(fails(&format!("{}1", "'xxxxxxxxxxxxxxxx' * 100000 ~ ".repeat(100))).contains("more work"));
    assert!(fails("('x' * 1000000) | replace('x', 'y' * 1000000)").contains("more work"));
    assert!(fails("(['x' * 1000000] * 100000) | join").contains("more work"));
    let error = evaluate_with_fuel("payload.n + payload.n + payload.n + 1", 3).unwrap_err();
    assert!(error.message.contains("more work than an expression may"), "{error}");
}

#[test]
fn results_that_are_no_json_are_errors() {
    assert!(fails("1e308 * 10").contains("not a JSON value"));
}

fn refused(source: &str) -> (&'static str, String) {
    let error = compile(source).expect_err(source);
    (error.code, error.message + &error.suggestion.unwrap_or_default())
}

#[test]
fn bad_expressions_are_refused_when_they_are_compiled() {
    assert_eq!(refused("").0, "bad_expression");
    assert_eq!(refused("payload.").0, "bad_expression");
    assert_eq!(refused("1 +").0, "bad_expression");
    assert_eq!(refused("'open").0, "bad_expression");
    assert_eq!(refused("payload.a payload.b").0, "bad_expression");
    assert_eq!(refused(&format!("'{}'", "x".repeat(5000))).0, "expression_too_long");
    assert_eq!(refused(&"(".repeat(4000)).0, "expression_too_deep");
    assert_eq!(refused(&format!("{}payload.x", "-".repeat(4000))).0, "expression_too_deep");
    assert_eq!(refused(&format!("{}payload.x", "not ".repeat(900))).0, "expression_too_deep");
    assert_eq!(refused(&format!("1{}", " if 1 else 1".repeat(300))).0, "expression_too_deep");
    assert_eq!(refused(&format!("1{}", "+1".repeat(2000))).0, "expression_too_deep");
    yields(&format!("[1]{}", "|list".repeat(800)), json!([1]));
}

#[test]
fn unknown_names_are_refused_with_a_suggestion() {
    let (code, message) = refused("paylod.x");
    assert_eq!(code, "unknown_name");
    assert!(message.ends_with("did you mean `payload`?"), "{message}");
    assert!(refused("steps[payload.x].output").1.contains("name the step literally"));
    assert!(refused("steps").1.contains("name the step literally"));
    assert!(refused("steps.a.input").1.ends_with("did you mean `steps.a.output`?"));
    assert!(refused("steps['a-b'].x").1.ends_with("did you mean `steps['a-b'].output`?"));
    assert_eq!(refused("steps.c.output").0, "unknown_step");
    assert_eq!(refused("tuned.lr").0, "unknown_name");
    assert!(refused("payload.x | lenght").1.ends_with("there is no filter `lenght`did you mean `length`?"));
    assert!(refused("payload.x is not definde").1.ends_with("there is no test `definde`did you mean `defined`?"));
    assert!(refused("range").1.contains("there is no name `range`"));
    assert_eq!(refused("_0").0, "unknown_name");
    assert_eq!(refused("x | default(y=z)").0, "unknown_name");
    assert!(compile("payload.x | default(value=1)").is_ok());
    let once = Expression::compile("item", &Bindings::new(&Limits::default(), &find, false)).unwrap_err();
    assert!(once.message.contains("`foreach`"));
}

#[test]
fn parts_of_artifacts_are_known_beforehand() {
    for fine in [
        "steps.a.artifacts",
        "steps.a.artifacts.custom | length",
        "steps['a-b'].artifacts.custom['report.html'].sha256",
        "steps.a.artifacts.checkpoint.100.uri",
        "steps.a.artifacts[0].checkpoint['100'].size + 1",
        "steps.a.artifacts[payload.kind].x.y",
    ] {
        let expression = compile(fine).unwrap_or_else(|error| panic!("{fine}: {error:?}"));
        assert!(expression.needs().outputs.is_empty() && expression.needs().artifacts.len() == 1, "{fine}");
    }
    for (wrong, told) in [
        ("steps.a.artifacts.custom.x.size_bytes", "has `uri`, `sha256` and `size`, but no `size_bytes`"),
        ("steps.a.artifacts.custom.x.sha265", "did you mean `sha256`?"),
        ("steps.a.artifacts.custom.x.sha", "did you mean `sha256`?"),
        ("steps.a.artifacts.custom.x.size_bytes", "did you mean `size`?"),
        ("steps.a.artifacts[2].custom.x.url", "did you mean `uri`?"),
        ("steps.a.artifacts.custom.x.uri.y", "`uri` has nothing below it"),
        ("steps.a.artifact.custom.x.uri", "did you mean `steps.a.artifacts`?"),
        (
            "steps['a-b'].artifacts[0].custom.report.v2.html.sha256",
            "did you mean `steps['a-b'].artifacts[0].custom['report.v2.html'].sha256`?",
        ),
    ] {
        let (code, message) = refused(wrong);
        assert!(code == "unknown_name" && message.contains(told), "{wrong}: {message}");
    }
}

#[test]
fn an_expression_knows_its_steps() {
    let expression = compile("steps['a-b'].output ~ steps.a.output.x ~ steps.a.output").unwrap();
    assert_eq!(expression.steps(), [0, 2]);
    let expression = compile("steps['a-b'].artifacts ~ steps.a.output.x ~ steps.a.artifacts").unwrap();
    let needs = expression.needs();
    assert_eq!((expression.steps(), &*needs.outputs, &*needs.artifacts), (&[0, 2][..], &[0][..], &[0, 2][..]));
    assert_eq!(format!("{:?}", compile(" payload.x ").unwrap()), "${{ payload.x }}");
}

#[test]
fn truth_is_jinjas() {
    for (source, truth) in [("''", false), ("'0'", true), ("0", false), ("0.0", false), ("[]", false), ("none", false)]
    {
        let (null, outputs, budget) = (Arc::new(Value::Null), Outputs::default(), with_fuel(1000));
        let scope = Scope { payload: &null, run: &null, steps: &outputs, item: None, index: None, budget: &budget };
        assert_eq!(compile(source).unwrap().truthy(&scope).unwrap(), truth, "{source}");
    }
}

#[test]
fn texts_are_split_at_their_expressions() {
    let literal = |text: &str| Raw::Literal(text.to_owned());
    assert_eq!(split("a ${{ x }} b").unwrap(), [literal("a "), Raw::Expression(" x "), literal(" b")]);
    assert_eq!(split("$${{ x }}").unwrap(), [literal("${{ x }}")]);
    assert_eq!(split("a $$${{ x }}").unwrap(), [literal("a $${{ x }}")]);
    assert_eq!(
        split("${{ '}}' }}${{ {'a': {}} }}").unwrap(),
        [Raw::Expression(" '}}' "), Raw::Expression(" {'a': {}} ")]
    );
    assert!(split("${{ x }").is_err());
    assert!(!has_expression("$${{ x }}") && has_expression("${{ x"));
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-zé]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_segment() -> impl Strategy<Value = String> {
    prop_oneof![
        "[abc]".prop_map(|key| format!(".{key}")),
        "[abc]".prop_map(|key| format!("['{key}']")),
        (-4_i64..4).prop_map(|index| format!("[{index}]")),
        (0_u8..3).prop_map(|index| format!(".{index}")),
    ]
}

/// Expressions full of operators, in every place where one can stand.
fn any_expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("2".to_owned()),
        Just("1".to_owned()),
        Just("payload.n".to_owned()),
        Just("payload.l".to_owned()),
        Just("payload.m".to_owned()),
        Just("payload.s".to_owned()),
        Just("payload.gone".to_owned()),
        Just("[1, 2]".to_owned()),
        Just("'a*b'".to_owned()),
        Just("payload['*']".to_owned()),
        Just("('x' if false)".to_owned()),
    ];
    let operators = ["*", "+", "-", "~", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "and", "or"];
    leaf.prop_recursive(5, 24, 3, move |inner| {
        let two = (inner.clone(), inner.clone());
        let three = (inner.clone(), inner.clone(), inner.clone());
        let operator = prop::sample::select(operators.to_vec());
        prop_oneof![
            8 => (two.clone(), operator.clone()).prop_map(|((a, b), op)| format!("{a} {op} {b}")),
            4 => (two.clone(), operator.clone()).prop_map(|((a, b), op)| format!("({a}) {op} ({b})")),
            2 => (three.clone(), operator.clone(), operator)
                .prop_map(|((a, b, c), op, other)| format!("{a} {op} {b} {other} {c}")),
            1 => two.clone().prop_map(|(a, b)| format!("({a} * 2) | string ~ {b}")),
            1 => two.clone().prop_map(|(a, b)| format!("({a}) | default({b} * 3)")),
            1 => two.clone().prop_map(|(a, b)| format!("2 * {a} if {a} == {b} * 1 else {b} * 2")),
            1 => two.clone().prop_map(|(a, b)| format!("{{'k': [{a} * 1, -{b}]}}")),
            1 => two.clone().prop_map(|(a, b)| format!("({a}) is eq({b})")),
            1 => two.clone().prop_map(|(a, b)| format!("[{a}, {b}] | sort | list")),
            1 => two.clone().prop_map(|(a, b)| format!("[{a}] | chain([{b}]) | list")),
            1 => two.clone().prop_map(|(a, b)| format!("({a})[{b}]")),
            1 => two.prop_map(|(a, b)| format!("({a}) not in ({b})")),
            1 => inner.clone().prop_map(|a| format!("{a} * 2 is divisibleby(2 * 1)")),
            1 => inner.clone().prop_map(|a| format!("(range(2 * 2) | list)[0 * 1:1 * {a}]")),
            1 => inner.clone().prop_map(|a| format!("({a})[1:]")),
            1 => inner.clone().prop_map(|a| format!("({a}) | reverse | list")),
            1 => inner.clone().prop_map(|a| format!("({a}) | length")),
            1 => inner.clone().prop_map(|a| format!("({a}) | unique | join('-')")),
            1 => inner.clone().prop_map(|a| format!("({a}) | items | list")),
            1 => inner.clone().prop_map(|a| format!("({a}) | tojson")),
            1 => inner.prop_map(|a| format!("not {a} * 2 in [4 * 1]")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// Also when nothing is converted before somebody looks at it.
    #[test]
    fn expressions_are_what_minijinja_makes_of_them(source in any_expression(), viewed in any::<bool>()) {
        let payload = json!({
            "n": 3, "*": 4, "s": "text", "l": [1, {"k": [2, "x"]}, [[]], "y", 2.5], "m": {"k": {"z": [1, 2]}, "": null, "a": "b"},
        });
        view::NOTHING_IS_SMALL.set(viewed);
        let found = compile(&source).ok().and_then(|expression| evaluate_over(&expression, &payload).ok());
        view::NOTHING_IS_SMALL.set(false);
        prop_assert_eq!(found, super::jinja::reference(&source, &payload), "{}", source);
    }
}

proptest! {
    #[test]
    fn walking_a_path_is_what_minijinja_does(payload in any_json(), segments in prop::collection::vec(any_segment(), 0..4)) {
        let walked = compile(&format!("payload{}", segments.concat())).unwrap();
        prop_assert!(matches!(walked.code, Code::Path(_)));
        let reference = jinja::reference(&format!("payload{}", segments.concat()), &payload);
        prop_assert_eq!(evaluate_over(&walked, &payload).ok(), reference);
    }

    #[test]
    fn compiling_never_panics(source in "[a-z.\\[\\](){}'\"|+*<>=,:0-9 -]{0,60}") {
        let _ = compile(&source);
        let _ = split(&source);
    }

    #[test]
    fn compiling_junk_never_panics(source in ".{0,40}") {
        let _ = compile(&source);
        let _ = split(&format!("${{{{{source}"));
    }
}

#[test]
fn filters_take_named_arguments() {
    yields("[{'k': 2}, {'k': 1}] | map(attribute='k') | list", json!([2, 1]));
    yields("[{'k': 2}, {'k': 1}] | sort(attribute='k') | map(attribute='k') | first", json!(1));
}
