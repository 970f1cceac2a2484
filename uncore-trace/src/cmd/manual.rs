//! Generates `docs/man/` from the help: a page for the program and one for each command.

use std::path::Path;
use std::{env, fs};

use clap::CommandFactory as _;

use super::Cli;

/// The pages by file name.
fn manual_pages() -> Vec<(String, String)> {
    let mut whole = Cli::command();
    whole.build();
    let page = |command: clap::Command, name: String| {
        let mut text = Vec::new();
        // No date: it would make every page outdated each day.
        let manual = clap_mangen::Man::new(command).title(name.to_uppercase()).date("");
        manual.render(&mut text).unwrap();
        (format!("{name}.1"), String::from_utf8(text).unwrap())
    };
    let commands = whole.get_subcommands().filter(|command| command.get_name() != "help");
    let commands: Vec<clap::Command> = commands.cloned().collect();
    let mut pages = vec![page(whole, "uncore-trace".to_owned())];
    for command in commands {
        let name = format!("uncore-trace-{}", command.get_name());
        // clap needs names of static lifetime; this test leaks them.
        let shown: &'static str = Box::leak(name.clone().into_boxed_str());
        pages.push(page(command.name(shown), name));
    }
    pages
}

#[test]
fn the_manual_pages_are_those_of_the_help() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/man");
    let pages = manual_pages();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(&directory).unwrap();
        for (name, text) in &pages {
            fs::write(directory.join(name), text).unwrap();
        }
    }
    for (name, text) in &pages {
        let committed = fs::read_to_string(directory.join(name)).unwrap_or_default();
        assert!(committed == *text, "docs/man/{name} is stale: run cargo xtask man");
    }
    let files = fs::read_dir(&directory).unwrap().map(|file| file.unwrap().file_name());
    for file in files {
        let is_made = pages.iter().any(|(name, _)| file.to_str() == Some(name));
        assert!(is_made, "docs/man/{} is of no command", file.display());
    }
}
