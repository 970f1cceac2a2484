//! Options about cgroups that name containers, shared by the commands that record.

use super::heading::OWNER;

// Not a doc comment: clap would make it the description of the command that has these options.
#[derive(Debug, Default, clap::Args)]
pub(super) struct TrustArgs {
    /// Believe all names of containers, pods, virtual machines and jobs of cgroups at and below
    /// this one. Elsewhere, a name is believed only if no user but root can have given it. May be
    /// given several times
    #[arg(long = "trust-cgroup", value_name = "PATH", help_heading = OWNER)]
    trusted: Vec<String>,
}

impl TrustArgs {
    /// The cgroups, as in the tables.
    pub(super) fn trusted_paths(&self) -> Vec<String> {
        self.trusted.iter().map(|path| as_cgroup(path)).collect()
    }
}

/// A cgroup path as in the tables: from the root of the hierarchy, without a slash at its end.
pub(super) fn as_cgroup(path: &str) -> String {
    let path = path.strip_prefix("/sys/fs/cgroup/unified").unwrap_or(path);
    format!("/{}", path.strip_prefix("/sys/fs/cgroup").unwrap_or(path).trim_matches('/'))
}
