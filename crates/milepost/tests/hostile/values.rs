//! Values that have hurt servers: deep, wide, long, repeated, recursive; texts that databases, terminals and parsers take
//! badly; numbers beyond every type.

/// A value and the kind of harm that it is meant to do.
pub(crate) type Hostile = (&'static str, Vec<u8>);

/// In a long campaign every value is tried everywhere.
fn everywhere() -> bool {
    std::env::var_os("MILEPOST_HOSTILE_SECONDS").is_some()
}

/// Small values are tried at every place, large ones at each third, in turns.
pub(crate) fn at_place(values: &[Hostile], place: usize) -> impl Iterator<Item = &Hostile> {
    const LARGE: usize = 5_000;
    in_turns(values, place, |value| value.1.len() >= LARGE)
}

/// Each value at each third of all places: what only the reader of a text sees is the same at all of them.
pub(crate) fn at_some_places(values: &[Hostile], place: usize) -> impl Iterator<Item = &Hostile> {
    in_turns(values, place, |_| true)
}

fn in_turns(values: &[Hostile], place: usize, waits: fn(&Hostile) -> bool) -> impl Iterator<Item = &Hostile> {
    let all = everywhere();
    let tried = move |index: usize, value: &Hostile| all || !waits(value) || (place + index).is_multiple_of(3);
    values.iter().enumerate().filter(move |(index, value)| tried(*index, value)).map(|(_, value)| value)
}

/// Texts for names, ids, cursors, times and numbers in addresses and headers.
pub(crate) fn texts() -> Vec<Hostile> {
    let mut texts: Vec<Hostile> = [
        ("empty", &b""[..]),
        ("blank", b" "),
        ("NUL", b"a\0b"),
        ("control characters", b"\x1b[2J\x07"),
        ("line breaks", b"a\r\nx-injected: 1"),
        ("C1 control character", "a\u{85}b".as_bytes()),
        ("direction of writing", "\u{202e}gpj".as_bytes()),
        ("lone surrogate", b"\xed\xa0\x80"),
        ("no UTF-8", b"\xff\xfe"),
        ("overlong UTF-8", b"\xc0\xaf"),
        ("escape of an escape", b"%2500"),
        ("half an escape", b"%"),
        ("infinity", b"1e999"),
        ("2^64", b"18446744073709551616"),
        ("2^63", b"9223372036854775808"),
        ("2^32", b"4294967296"),
        ("minus zero", b"-0"),
        ("negative", b"-1"),
        ("NaN", b"NaN"),
        ("sign", b"+1"),
        ("hexadecimal", b"0x10"),
        ("digits of other writings", "\u{0661}\u{0662}".as_bytes()),
        ("path", b"../../../../etc/passwd"),
        ("slashes", b"//"),
        ("SQL", b"' OR 1=1; --"),
        ("pattern", b"%_*?[a-"),
        ("expression", b"${{ payload }}"),
        ("secret", b"{{secret:DB}}"),
        ("JSON", b"{\"a\":[1]}"),
        ("time before all", b"-009999-01-01T00:00:00Z"),
        ("time after all", b"9999-12-31T23:59:60.999999999Z"),
        ("id of nobody", b"00000000-0000-0000-0000-000000000000"),
        ("reference far back", b"hello~18446744073709551615"),
        ("reference to a time", b"hello@9999-99-99T99:99:99Z"),
    ]
    .map(|(kind, text)| (kind, text.to_vec()))
    .to_vec();
    texts.push(("long", vec![b'x'; 4_000]));
    texts.push(("longer", "\u{1F600}".repeat(4_000).into_bytes()));
    texts.push(("deep", ".a".repeat(20_000).into_bytes()));
    texts.push(("wide", "a,".repeat(20_000).into_bytes()));
    texts.push(("many references", "hello~1".repeat(2_000).into_bytes()));
    texts
}

/// JSON texts, some of which are none.
pub(crate) fn jsons() -> Vec<Hostile> {
    let mut jsons: Vec<Hostile> = [
        ("null", "null"),
        ("flag", "true"),
        ("zero", "0"),
        ("minus zero", "-0"),
        ("negative", "-1"),
        ("fraction", "0.1"),
        ("infinity", "1e999"),
        ("minus infinity", "-1e999"),
        ("large", "1e308"),
        ("2^64", "18446744073709551616"),
        ("2^63", "9223372036854775808"),
        ("2^53", "9007199254740993"),
        ("2^31", "2147483648"),
        ("NaN", "NaN"),
        ("NaN as text", "\"NaN\""),
        ("number as text", "\"1\""),
        ("empty text", "\"\""),
        ("blank", "\" \""),
        ("NUL", "\"a\\u0000b\""),
        ("raw NUL", "\"a\0b\""),
        ("control characters", "\"\\u001b[2J\\u0007\""),
        ("line breaks", "\"a\\r\\nx-injected: 1\""),
        ("C1 control character", "\"\\u0085\""),
        ("direction of writing", "\"\\u202egpj\""),
        ("lone surrogate", "\"\\ud800\""),
        ("surrogates the wrong way round", "\"\\udc00\\ud800\""),
        ("path", "\"../../../../etc/passwd\""),
        ("SQL", "\"' OR 1=1; --\""),
        ("expression", "\"${{ payload }}\""),
        ("broken expression", "\"${{ ((((( }}\""),
        ("secret", "\"{{secret:DB}}\""),
        ("time before all", "\"-009999-01-01T00:00:00Z\""),
        ("time after all", "\"9999-12-31T23:59:60.999999999Z\""),
        ("id of nobody", "\"00000000-0000-0000-0000-000000000000\""),
        ("empty list", "[]"),
        ("empty map", "{}"),
        ("list of everything", "[null,1,\"a\",[],{}]"),
        ("key twice", "{\"a\":1,\"a\":2}"),
        ("empty key", "{\"\":1}"),
        ("key with NUL", "{\"a\\u0000\":1}"),
        ("key with a surrogate", "{\"\\ud800\":1}"),
        ("prototype", "{\"__proto__\":{\"a\":1},\"constructor\":1}"),
        ("reference to itself", "{\"$ref\":\"#\"}"),
    ]
    .map(|(kind, text)| (kind, text.as_bytes().to_vec()))
    .to_vec();
    jsons.push(("no UTF-8", b"\"\xff\xfe\"".to_vec()));
    jsons.push(("many digits", [b"1".repeat(5_000), b"e-5000".to_vec()].concat()));
    jsons.push(("long", quoted(&"x".repeat(70_000))));
    jsons.push(("longer", quoted(&"\\u0001".repeat(40_000))));
    jsons.push(("as deep as allowed", nested("[", "]", 50)));
    jsons.push(("deep list", nested("[", "]", 10_000)));
    jsons.push(("deep map", nested("{\"a\":", "}", 10_000)));
    jsons.push(("wide list", list(&"0,".repeat(10_000))));
    jsons.push(("wide list of texts", list(&"\"a\",".repeat(10_000))));
    jsons.push(("wide list of maps", list(&"{},".repeat(10_000))));
    jsons.push(("wide map", map(&(0..5_000).map(|n| format!("\"k{n}\":{n},")).collect::<String>())));
    jsons.push(("long key", map(&format!("\"{}\":1,", "k".repeat(70_000)))));
    jsons
}

/// YAML texts for one value, written in the flow style; anchors are the value's own.
pub(crate) fn yamls() -> Vec<Hostile> {
    let mut yamls: Vec<Hostile> = [
        ("tilde", "~"),
        ("not a number", ".nan"),
        ("infinity", ".inf"),
        ("octal", "0o777"),
        ("base 60", "190:20:30"),
        ("no", "no"),
        ("date", "2026-01-01"),
        ("tag", "!!python/object/apply:os.system [id]"),
        ("own tag", "!x y"),
        ("binary", "!!binary aGVsbG8="),
        ("set", "!!set {a, b}"),
        ("merge", "{<<: {a: 1}, b: 2}"),
        ("recursive list", "&a [*a]"),
        ("recursive map", "&a {a: *a}"),
        ("alias of nothing", "*nothing"),
        ("anchor twice", "[&a 1, &a 2, *a]"),
        ("alias as a key", "[&a x, {*a : 1}]"),
        ("list as a key", "{[1, 2]: 3}"),
        ("key twice", "{a: 1, a: 2}"),
        ("NUL", "\"a\\0b\""),
        ("raw NUL", "a\0b"),
        ("lone surrogate", "\"\\uD800\""),
        ("bell", "\"\\a\\e[2J\""),
        ("next line", "\"\\N\\L\\P\""),
        ("another document", "x\n---\ny"),
        ("directive", "x\n...\n%YAML 9.9\n---\ny"),
        ("tab", "\ta"),
        ("block", "|9\n a"),
    ]
    .map(|(kind, text)| (kind, text.as_bytes().to_vec()))
    .to_vec();
    yamls.push(("deep", nested("[", "]", 5_000)));
    yamls.push(("deep map", nested("{a: ", "}", 5_000)));
    yamls.push(("aliased texts", aliased(&format!("\"{}\"", "x".repeat(20_000)), 2_000).into_bytes()));
    yamls.push(("aliased lists", doubled(24).into_bytes()));
    yamls.push(("aliases of aliases", aliased("[[[]]]", 20_000).into_bytes()));
    yamls
}

pub(crate) fn quoted(text: &str) -> Vec<u8> {
    format!("\"{text}\"").into_bytes()
}

pub(crate) fn nested(open: &str, close: &str, depth: usize) -> Vec<u8> {
    let inner = if open.ends_with([':', ' ']) { "1" } else { "" };
    format!("{}{inner}{}", open.repeat(depth), close.repeat(depth)).into_bytes()
}

fn list(items: &str) -> Vec<u8> {
    format!("[{}]", items.trim_end_matches(',')).into_bytes()
}

fn map(entries: &str) -> Vec<u8> {
    format!("{{{}}}", entries.trim_end_matches(',')).into_bytes()
}

/// One value and many aliases of it.
pub(crate) fn aliased(value: &str, times: usize) -> String {
    format!("[&a {value}{}]", ", *a".repeat(times))
}

/// Each level holds the one before it twice.
pub(crate) fn doubled(levels: usize) -> String {
    let mut text = "[&l0 [x, x]".to_owned();
    for level in 1..=levels {
        text += &format!(", &l{level} [*l{0}, *l{0}]", level - 1);
    }
    text + "]"
}
