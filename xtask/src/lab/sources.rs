//! The machine's own Debian archives, as apt reports them, as sources for other suites.
//!
//! No address is written here: the lab uses the same archives as the machine, with the same keys.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::command::run_quietly;

/// An archive in apt's configuration.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AptArchive {
    uri: String,
    security: bool,
    /// The value of `Signed-By` in the machine's own file; several lines if it is the key itself.
    signed_by: Option<String>,
}

/// A sources file with these suites of the machine's Debian archives.
pub(super) fn sources_text(suites: &[&str], security_suites: &[&str]) -> Result<String> {
    let paragraph = |archive: &AptArchive| {
        let suites = if archive.security { security_suites } else { suites };
        let key = archive.signed_by.as_ref().map(|key| format!("Signed-By:{key}\n"));
        format!(
            "Types: deb\nURIs: {}\nSuites: {}\nComponents: main\nArchitectures: amd64 arm64\n{}\n",
            archive.uri,
            suites.join(" "),
            key.unwrap_or_default()
        )
    };
    Ok(machine_archives()?.iter().map(paragraph).collect())
}

/// Asks apt; of several mirrors of one archive, the first is used.
fn machine_archives() -> Result<Vec<AptArchive>> {
    let targets = run_quietly(Command::new("apt-get").env("LC_ALL", "C").args([
        "indextargets",
        "Created-By: Packages",
        "Origin: Debian",
        "--format",
        "$(REPO_URI) $(LABEL) $(SOURCESENTRY)",
    ]))?;
    let mut seen = BTreeSet::new();
    let mut archives = Vec::new();
    for line in targets.lines() {
        let mut words = line.splitn(3, ' ');
        let (Some(uri), Some(label), Some(entry)) = (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let security = label == "Debian-Security";
        if (security || label == "Debian") && seen.insert(security) {
            let signed_by = signed_by(entry)?;
            archives.push(AptArchive { uri: uri.to_owned(), security, signed_by });
        }
    }
    ensure!(
        seen.contains(&false),
        "apt has no list of a Debian archive: run `apt-get update`; the lab takes its kernels there"
    );
    archives.sort();
    Ok(archives)
}

/// The key of an entry `FILE:NUMBER`: apt counts paragraphs of `.sources` files and lines of
/// `.list` files.
fn signed_by(entry: &str) -> Result<Option<String>> {
    let (path, number) = entry.rsplit_once(':').with_context(|| format!("apt says {entry}"))?;
    let number: usize = number.parse().with_context(|| format!("apt says {entry}"))?;
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Ok(if path.ends_with(".sources") {
        paragraph_key(&text, number)
    } else {
        text.lines().nth(number.saturating_sub(1)).and_then(line_key)
    })
}

/// `Signed-By` of a paragraph, with its continuation lines.
fn paragraph_key(text: &str, number: usize) -> Option<String> {
    let mut paragraphs = text.split("\n\n").filter(|paragraph| {
        paragraph.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'))
    });
    let mut lines = paragraphs.nth(number.saturating_sub(1))?.lines();
    let first_line = lines.by_ref().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("signed-by").then_some(value)
    })?;
    let continuation = lines.take_while(|line| line.starts_with([' ', '\t']));
    Some(continuation.fold(first_line.to_owned(), |key, line| key + "\n" + line))
}

/// `signed-by=` of a one-line entry.
fn line_key(line: &str) -> Option<String> {
    let options = line.split_once('[')?.1.split_once(']')?.0;
    let key = options.split_whitespace().find_map(|option| option.strip_prefix("signed-by="))?;
    Some(format!(" {key}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_in_both_formats() {
        let text = "Types: deb\nSigned-By: /a.gpg\nURIs: u\n\n# note\n\nTypes: deb\nsigned-by:\n \
                    -----BEGIN\n .\n abc\nURIs: v\n";
        assert_eq!(paragraph_key(text, 1).as_deref(), Some(" /a.gpg"));
        assert_eq!(paragraph_key(text, 2).as_deref(), Some("\n -----BEGIN\n .\n abc"));
        assert_eq!(paragraph_key(text, 3), None);
        let line = "deb [arch=amd64 signed-by=/b.gpg] http://x y main";
        assert_eq!(line_key(line).as_deref(), Some(" /b.gpg"));
        assert_eq!(line_key("deb http://x y main"), None);
    }
}
