use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::hash::Digest;
use crate::limits::Limits;

fn golden(source: &str, canonical: &str, hash: &str) {
    let value: Value = serde_json::from_str(source).unwrap();
    assert_eq!(to_string(&value).unwrap(), canonical);
    assert_eq!(Digest::of(canonical.as_bytes()).to_string(), hash);
}

#[test]
fn the_number_sample_of_rfc_8785() {
    golden(
        r#"{"numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
            "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/", "literals": [null, true, false]}"#,
        "{\"literals\":[null,true,false],\"numbers\":[333333333.3333333,1e+30,4.5,0.002,1e-27],\
         \"string\":\"€$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\"}",
        GOLDEN_NUMBERS,
    );
}

#[test]
fn the_key_sorting_sample_of_rfc_8785() {
    golden(
        r#"{"\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh", "1": "One",
            "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control", "\u00f6": "Latin Small Letter O With Diaeresis"}"#,
        "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\
         \"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        GOLDEN_KEYS,
    );
}

const GOLDEN_NUMBERS: &str = "2d5e01a318d0f0879ab568c4be289c8b1f64ef8921a53c6277d5e069978baacb";
const GOLDEN_KEYS: &str = "5e321556d22018a9656991a9e94f77ec175fa193e52a2429d312f8419ec8b08c";

#[test]
fn number_samples_of_rfc_8785_appendix_b() {
    let bits: [(u64, &str); 16] = [
        (0x0000_0000_0000_0000, "0"),
        (0x8000_0000_0000_0000, "0"),
        (0x0000_0000_0000_0001, "5e-324"),
        (0x8000_0000_0000_0001, "-5e-324"),
        (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
        (0x4340_0000_0000_0000, "9007199254740992"),
        (0x4430_0000_0000_0000, "295147905179352830000"),
        (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
        (0x44b5_2d02_c7e1_4af6, "1e+23"),
        (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
        (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
        (0x444b_1ae4_d6e2_ef50, "1e+21"),
        (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
        (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
        (0x41b3_de43_5555_5553, "333333333.3333332"),
        (0x3ff0_0000_0000_0000, "1"),
    ];
    for (bits, text) in bits {
        assert_eq!(to_string(&json!(f64::from_bits(bits))).unwrap(), text);
    }
}

#[test]
fn integers_that_readers_round_are_refused_with_their_path() {
    let error = to_string(&json!({"a": [1, {"b/c": 9_007_199_254_740_992_u64}]})).unwrap_err();
    assert_eq!(error, NotCanonical::IntegerTooLarge { path: "/a/1/b~1c".into() });
    assert!(to_string(&json!(-9_007_199_254_740_991_i64)).is_ok());
    assert!(to_string(&json!(-9_007_199_254_740_992_i64)).is_err());
}

#[test]
fn depth_counts_containers() {
    assert!(check_value(&json!([[1]]), 2).is_ok());
    let error = check_value(&json!({"a": [[1]]}), 2).unwrap_err();
    assert_eq!(error, NotCanonical::TooDeep { path: "/a/0".into(), limit: 2 });
}

#[test]
fn strict_reading_refuses_what_would_be_lost() {
    let refused = |text: &str| parse_strict(text, 3).unwrap_err().to_string();
    assert_eq!(refused("{\"a\": 1,\n \"a\": 2}"), "the key `a` appears twice at line 2 column 4");
    assert!(refused("[9007199254740992]").contains("send it as a string at line 1"));
    assert!(refused("[[[[1]]]]").contains("nested too deeply"));
    assert!(refused("[1] x").contains("trailing characters at line 1 column 5"));
    assert_eq!(parse_strict("[[[1.5, null]]]", 3).unwrap(), json!([[[1.5, null]]]));
}

#[test]
fn keys_of_what_comes_from_outside_are_short() {
    let limits = Limits { key_bytes: 3, ..Limits::default() };
    assert!(parse_within(r#"[{"abc": 1}]"#, &limits).is_ok());
    assert!(parse_within(r#"{"\u0061bc": 1}"#, &limits).is_ok());
    let refused = |text: &str| parse_within(text, &limits).unwrap_err().to_string();
    assert_eq!(refused(r#"[{"abcd": 1}]"#), "a key has 4 bytes, the limit is 3 at line 1 column 8");
    assert!(refused(r#"{"é€": 1}"#).contains("a key has 5 bytes"));
    let twice = format!(r#"{{"{0}": 1, "{0}": 2}}"#, "k".repeat(5000));
    assert!(parse_strict(&twice, 3).unwrap_err().to_string().len() < 500);
    let deep = "[".repeat(65) + &"]".repeat(65);
    assert!(parse_within(&deep, &limits).is_err());
}

fn any_json() -> impl Strategy<Value = Value> {
    let safe = -(MAX_SAFE_INTEGER as i64)..=(MAX_SAFE_INTEGER as i64);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        safe.prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        "[ -~]*".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(".{0,3}", inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn our_writer_equals_the_reference(value in any_json()) {
        prop_assert_eq!(to_string(&value).unwrap(), serde_json_canonicalizer::to_string(&value).unwrap());
    }

    #[test]
    fn strict_reading_reads_what_was_written(value in any_json()) {
        let text = value.to_string();
        prop_assert_eq!(parse_strict(&text, 64).unwrap(), serde_json::from_str::<Value>(&text).unwrap());
    }
}

#[test]
fn texts_that_may_not_be_read_are_seen_at_a_glance() {
    assert_eq!(
        glance(r#"{"a": [1, 2, 0.30000000000000004], "e1": "1e999 [[", "t": true}"#),
        Glance { deepest: 2, values: 7, maps: 1, odd: false }
    );
    for odd in ["9007199254740993", "1e999", "[1.5E3]", r#""\ud800""#, r#"{"\uDC00": 1}"#, "[1234567890123456]"] {
        assert!(glance(odd).odd, "{odd}");
    }
    assert!(check_strict("[1e3]", 64).is_ok() && check_strict("1e999", 64).is_err());
    assert!(check_strict(r#""\ud83d\ude00""#, 64).is_ok() && check_strict(r#""\ud800""#, 64).is_err());
    assert!(check_strict(&("[".repeat(65) + &"]".repeat(65)), 64).is_err());
    assert!(check_strict(r#""\\ud800""#, 64).is_ok());
}
