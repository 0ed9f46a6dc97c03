//! The example of the library is short, compiles and runs.

use std::process::Command;

#[test]
fn the_library_example_runs() {
    let source = include_str!("../../examples/library.rs");
    assert!(source.lines().count() <= 40, "it should fit on a page");
    let mut cargo = Command::new(env!("CARGO"));
    let ran = cargo.args(["run", "--quiet", "-p", "milepost-engine", "--example", "library"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success(), "{ran:?}");
    assert!(said.contains("completed") && said.contains("HELLO, ADA"), "{said}");
}
