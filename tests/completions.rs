//! Tests of the completions in bash, with the script that `completions` prints.

#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::command::{NO_CONFIG, Place};

/// The completions that bash offers for the last word.
fn offered(place: &Place, words: &str) -> Vec<String> {
    let program = Path::new(crate::PROGRAM).parent().unwrap().display();
    let script = format!(
        "PATH={program}:$PATH; . ./script; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
         _uncore__trace uncore-trace \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD - 1]}}\"
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut command = Command::new("bash");
    command
        .args(["--norc", "-c", &script])
        .current_dir(place.path(""))
        .env("XDG_CONFIG_HOME", NO_CONFIG);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}

/// bash used to complete files of the working directory.
#[test]
fn bash_completes_the_groups_and_events_of_this_machine() {
    let place = Place::new();
    fs::write(place.path("script"), place.typed("completions bash").ok()).unwrap();
    fs::write(place.path("host.txt"), "").unwrap();
    assert_eq!(offered(&place, "uncore-trace record -p hos"), ["host"]);
    assert_eq!(offered(&place, "uncore-trace stat --groups host,al"), ["host,all"]);
    // A name that is already in the list is not offered again.
    assert_eq!(offered(&place, "uncore-trace top -p host,hos"), [""]);
    assert_eq!(offered(&place, "uncore-trace record -e page-f"), ["page-faults"]);
    assert_eq!(offered(&place, "uncore-trace record -M no_such_metric"), [""]);
    assert!(offered(&place, "uncore-trace rep").contains(&"report".to_owned()));
}
