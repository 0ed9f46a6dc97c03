//! Files that runs left: listed and got, from a database.

use super::Place;

const MAKES: &str = r#"
name: makes
steps:
  a:
    skill: shell
    input:
      command: 'printf hello > "$MILEPOST_ARTIFACTS/hello.txt"; mkdir "$MILEPOST_ARTIFACTS/sub"; printf deep > "$MILEPOST_ARTIFACTS/sub/b.txt"; echo 1'
  b: {skill: shell, depends_on: [a], input: {command: 'printf other > "$MILEPOST_ARTIFACTS/hello.txt"'}}
  c: {skill: shell, depends_on: [b], input: {command: 'printf lost > "$MILEPOST_ARTIFACTS/x"; exit 1'}, retry: {max_attempts: 1}}
"#;

#[test]
fn what_a_program_puts_into_its_folder_is_listed_and_got() {
    let place = Place::new();
    let file = place.file("makes.yaml", MAKES);
    let run = place.run_json(&file, &[]);
    assert_eq!(run["status"], "failed", "c fails, and leaves nothing");
    let listed = place.json(&["runs", "artifacts", "last"]);
    let names: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|a| a["filename"].as_str().unwrap()).collect();
    assert_eq!(names, ["hello.txt", "sub/b.txt", "hello.txt"]);
    let table = place.run(&["runs", "artifacts", "last", "--step", "a"]).out;
    let lines: Vec<&str> = table.lines().collect();
    assert!(lines[0].starts_with("ID") && lines[0].contains("KIND") && lines.len() == 3, "{table}");
    assert!(lines[1].contains("custom") && lines[1].contains("hello.txt") && lines[1].contains("5 B"), "{table}");
    assert_eq!(place.run(&["runs", "artifacts", "last", "--kind", "policy"]).out, "no artifacts\n");

    let got = place.run(&["runs", "artifacts", "last", "--get", "sub/b.txt"]);
    assert_eq!((got.code, got.out.as_str()), (0, "b.txt (4 B)\n"), "{}", got.err);
    assert_eq!(std::fs::read_to_string(place.path().join("b.txt")).unwrap(), "deep");
    let again = place.run(&["runs", "artifacts", "last", "--get", "sub/b.txt"]);
    assert!(
        again.code != 0
            && again.err.contains("b.txt is there already")
            && again.err.contains("name another place with --to"),
        "{}",
        again.err
    );
    let several = place.run(&["runs", "artifacts", "last", "--get", "hello.txt"]);
    assert!(several.err.contains("several artifacts are called `hello.txt`"), "{}", several.err);
    let one = place.run(&["runs", "artifacts", "last", "--get", "hello.txt", "--step", "b", "--to", "-"]);
    assert_eq!(one.out, "other");
    let id = listed["items"][0]["artifact_id"].as_str().unwrap();
    let by_id = place.json(&["runs", "artifacts", "last", "--get", id, "--to", "by-id.txt"]);
    assert_eq!((&by_id["path"], &by_id["size_bytes"]), (&"by-id.txt".into(), &5.into()));
    assert_eq!(std::fs::read_to_string(place.path().join("by-id.txt")).unwrap(), "hello");
    let none = place.run(&["runs", "artifacts", "last", "--get", "nothing"]);
    assert!(none.code != 0 && none.err.contains("has no artifact `nothing`"), "{}", none.err);
    let unknown = place.run(&["runs", "artifacts", "last", "--step", "x"]);
    assert!(unknown.code != 0 && unknown.err.contains("the run has no step `x`"), "{}", unknown.err);
    // What is damaged is not taken for what it was.
    let blobs = super::files_below(&place.path().join(".milepost/blobs"));
    blobs.iter().for_each(|path| {
        let size = std::fs::read(path).unwrap().len();
        std::fs::write(path, "!".repeat(size)).unwrap();
    });
    let damaged = place.run(&["runs", "artifacts", "last", "--get", id, "--to", "damaged.txt"]);
    assert!(damaged.code != 0 && damaged.err.contains("which is not the artifact's"), "{}", damaged.err);
    assert!(!place.path().join("damaged.txt").exists());
}
