//! Which part of a roll-up is read.

use crate::clock::TimeSpan;
use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use globset::{Glob, GlobMatcher};

/// Hosts that an error names.
const NAMED: usize = 8;

/// Which part of a roll-up is read. Directories of other hosts and hours are not opened.
#[derive(Debug, Clone, Default)]
pub struct RollupSelection {
    /// Names of hosts, with `*` for any text; all where there are none.
    pub hosts: Vec<String>,
    /// Windows that end after the first and not after the second of these wall times are needed, ns
    /// since 1970. Some windows before and after come too.
    pub wall_span: Option<TimeSpan<i64>>,
}

/// Hosts that are wanted.
#[derive(Debug)]
pub(in crate::tables) struct Hosts(Vec<(String, GlobMatcher)>);

impl Hosts {
    /// Hosts that are named, or matched with `*`; all hosts if `wanted` is empty.
    ///
    /// # Errors
    ///
    /// A pattern is not valid.
    pub(in crate::tables) fn new(wanted: &[String]) -> Result<Self> {
        let compiled = wanted.iter().map(|pattern| {
            let glob = Glob::new(pattern);
            let glob = glob.with_context(|| format!("--host {pattern:?} is not a name"))?;
            Ok((pattern.clone(), glob.compile_matcher()))
        });
        compiled.collect::<Result<_>>().map(Self)
    }

    pub(in crate::tables) fn has_host(&self, host: &str) -> bool {
        self.0.is_empty() || self.0.iter().any(|pattern| matches_host(pattern, host))
    }

    /// Checks that each pattern matches one of these hosts.
    ///
    /// # Errors
    ///
    /// A pattern matches none; the error names the hosts that there are.
    pub(in crate::tables) fn require_all_matched(
        &self,
        path: &Path,
        hosts: &BTreeSet<String>,
    ) -> Result<()> {
        for pattern in &self.0 {
            if !hosts.iter().any(|host| matches_host(pattern, host)) {
                let named: Vec<&str> = hosts.iter().take(NAMED).map(String::as_str).collect();
                let omitted = hosts.len().saturating_sub(NAMED);
                let suffix =
                    if omitted > 0 { format!(" and {omitted} more") } else { String::new() };
                let (path, named) = (path.display(), named.join(", "));
                bail!("{path} has no host {}: it has {named}{suffix}", pattern.0);
            }
        }
        Ok(())
    }
}

fn matches_host((pattern, glob): &(String, GlobMatcher), host: &str) -> bool {
    glob.is_match(host) || host == pattern
}
