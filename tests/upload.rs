//! `uncore-trace upload` becomes `uncore-trace-upload`; tests of that program are in `uploads`.

use std::fs;
use std::process::Command;

use crate::command::{Answer, Place, script};

/// The program, copied to a directory of its own and asked to upload.
fn upload(place: &Place) -> Command {
    let mut command = Command::new(place.tool_for_all());
    command.args(["upload", "--config", "a b.toml", "--once"]).current_dir(place.path("."));
    command
}

#[test]
fn the_program_beside_it_gets_the_options_and_gives_the_exit_code() {
    let place = Place::new();
    let text = "#!/bin/sh\necho $$ \"$@\"\nexit 7\n";
    script(&place.path("uncore-trace-upload"), text);
    // In `PATH` is another one.
    fs::create_dir(place.path("bin")).unwrap();
    script(&place.path("bin/uncore-trace-upload"), "#!/bin/sh\nexit 8\n");
    let mut command = upload(&place);
    let child = command.env("PATH", format!("{}:/usr/bin:/bin", place.path("bin").display()));
    let child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let answer = Answer::of(child.wait_with_output().unwrap());
    assert_eq!(answer.code, 7, "{answer:?}");
    // Signals to the process reach the program: it is the same process.
    assert_eq!(answer.out, format!("{pid} --config a b.toml --once\n"));
    fs::remove_file(place.path("uncore-trace-upload")).unwrap();
    assert_eq!(Answer::of(command.output().unwrap()).code, 8);
}

#[test]
fn a_missing_program_is_named_with_the_way_to_install_it() {
    let place = Place::new();
    let mut command = upload(&place);
    let line = Answer::of(command.env("PATH", place.path("bin")).output().unwrap()).refused();
    let says = format!("cannot find uncore-trace-upload beside {}", place.path("").display());
    assert!(line.contains(&says), "{line}");
    assert!(line.contains("cargo install --locked --path uncore-trace-upload"), "{line}");
}
