//! Finds the job and step of Slurm in the components of a cgroup path.
//!
//! The forms are those of Slurm 26.05 and before (`src/plugins/cgroup/v2/cgroup_v2.c`,
//! `cgroup_p_step_create`, and `v1/xcgroup.c`, `xcgroup_create_hierarchy`):
//!
//! - v2: `slurmstepd.scope/job_JOB/step_STEP`, or `NODE_slurmstepd.scope` where several daemons
//!   run. Newer ones have the job's SLUID in place of `job_JOB`, unless `CgroupJobIdPaths=yes`.
//! - v1: `uid_UID/job_JOB/step_STEP`, below any prefix (`CgroupPrepend`).
//!
//! The job of an array and a component of a heterogeneous job have numbers of their own, as in
//! `JobIDRaw` of `sacct`.

use std::borrow::Cow;

/// The scope of the daemons, below which jobs are.
const SCOPE: &str = "slurmstepd.scope";

/// Steps without a number (`log_build_step_id_str`, `src/common/log.c`).
const STEPS: [&str; 4] = ["batch", "extern", "interactive", "TBD"];

/// Characters of a SLUID after its `s` (`print_sluid`, `src/common/sluid.c`): 64 bits in
/// Crockford's base 32.
const SLUID: usize = 13;

/// Finds the outermost job of a path, component by component.
#[derive(Debug, Default)]
pub(super) struct JobFinder<'a> {
    /// The job, while its step may follow.
    job: Option<&'a str>,
}

impl<'a> JobFinder<'a> {
    /// Looks at the next component, which is below `above`. Whether it is of the job, which is then
    /// in `job_name`.
    pub(super) fn find_job(
        &mut self,
        component: &'a str,
        above: &str,
        job_name: &mut Option<Cow<'a, str>>,
    ) -> bool {
        if let Some(job) = self.job.take() {
            let step = component.strip_prefix("step_").filter(|step| is_step(step));
            if let Some(step) = step {
                *job_name = Some(Cow::Owned(format!("{job}.{step}")));
            }
            return step.is_some();
        }
        if job_name.is_none() {
            self.job = parse_job(component, above);
            *job_name = self.job.map(Cow::Borrowed);
        }
        self.job.is_some()
    }
}

fn parse_job<'a>(component: &'a str, above: &str) -> Option<&'a str> {
    let node = above.strip_suffix(SCOPE);
    let is_scope = node.is_some_and(|node| node.is_empty() || node.ends_with('_'));
    let of_user = above.strip_prefix("uid_").is_some_and(is_number);
    let number =
        component.strip_prefix("job_").filter(|job| is_number(job) && (is_scope || of_user));
    number.or_else(|| (is_scope && is_sluid(component)).then_some(component))
}

/// A number, or one of [`STEPS`], with `+COMPONENT` in a heterogeneous job.
fn is_step(step: &str) -> bool {
    let (step, component) = step.split_once('+').unwrap_or((step, "0"));
    (is_number(step) || STEPS.contains(&step)) && is_number(component)
}

fn is_sluid(text: &str) -> bool {
    let is_digit =
        |byte: u8| (byte.is_ascii_digit() || byte.is_ascii_uppercase()) && !b"ILOU".contains(&byte);
    let digits = text.strip_prefix('s').filter(|digits| digits.len() == SLUID);
    digits.is_some_and(|digits| digits.bytes().all(is_digit))
}

/// A number of 32 bits, as the daemons write it.
fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u32>().is_ok()
        && (text == "0" || !text.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::super::containers::Inside;

    const ID: &str = "3f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a90123f4e5d6c7b8a9012";

    #[test]
    fn jobs_and_steps_are_found_in_each_layout() {
        for (path, job) in [
            // v2, and what is below a step.
            ("/system.slice/slurmstepd.scope", None),
            ("/system.slice/slurmstepd.scope/system", None),
            ("/system.slice/slurmd.service", None),
            ("/system.slice/slurmstepd.scope/job_123", Some("123")),
            ("/system.slice/slurmstepd.scope/job_123/step_0", Some("123.0")),
            ("/system.slice/slurmstepd.scope/job_123/step_0/slurm", Some("123.0")),
            ("/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", Some("123.0")),
            ("/system.slice/slurmstepd.scope/job_123/step_0/user/task_4294967293", Some("123.0")),
            ("/system.slice/slurmstepd.scope/job_123/step_batch/user/task_0", Some("123.batch")),
            ("/system.slice/slurmstepd.scope/job_123/step_extern/user", Some("123.extern")),
            ("/system.slice/slurmstepd.scope/job_123/step_interactive", Some("123.interactive")),
            ("/system.slice/slurmstepd.scope/job_123/step_TBD", Some("123.TBD")),
            // Heterogeneous jobs.
            ("/system.slice/slurmstepd.scope/job_123/step_0+1/user/task_0", Some("123.0+1")),
            // Several daemons on a host, a slice of its own, and the largest number.
            ("/system.slice/node1_slurmstepd.scope/job_7/step_2/user/task_1", Some("7.2")),
            ("/hpc.slice/slurmstepd.scope/job_4294967295/step_1/user", Some("4294967295.1")),
            // By SLUID.
            (
                "/system.slice/slurmstepd.scope/s2DJ4X0F5HG800/step_0/user/task_0",
                Some("s2DJ4X0F5HG800.0"),
            ),
            ("/system.slice/slurmstepd.scope/s2DJ4X0F5HG800", Some("s2DJ4X0F5HG800")),
            // v1, with the prefixes that `CgroupPrepend` gives.
            ("/slurm", None),
            ("/slurm/uid_1000", None),
            ("/slurm/uid_1000/job_123", Some("123")),
            ("/slurm/uid_1000/job_123/step_batch/task_0", Some("123.batch")),
            ("/slurm_node1/uid_0/job_5/step_extern", Some("5.extern")),
            ("/batch/uid_1000/job_123/step_7/task_3", Some("123.7")),
            // The outermost job and step count: a job may make cgroups of any name.
            (
                "/system.slice/slurmstepd.scope/job_1/step_0/user/slurmstepd.scope/job_2/step_9",
                Some("1.0"),
            ),
            ("/system.slice/slurmstepd.scope/job_1/x/step_9", Some("1")),
            ("/system.slice/slurmstepd.scope/job_1/step_0/step_9", Some("1.0")),
            // Similar ones.
            ("/system.slice/job_123/step_0", None),
            ("/system.slice/xslurmstepd.scope/job_123", None),
            ("/system.slice/slurmstepd.scope/job_", None),
            ("/system.slice/slurmstepd.scope/job_0123", None),
            ("/system.slice/slurmstepd.scope/job_4294967296", None),
            ("/system.slice/slurmstepd.scope/job_+1", None),
            ("/system.slice/slurmstepd.scope/job_1\u{1b}[2J", None),
            ("/system.slice/slurmstepd.scope/s2DJ4X0F5HG80O", None),
            ("/system.slice/slurmstepd.scope/job_123/step_", Some("123")),
            ("/system.slice/slurmstepd.scope/job_123/step_0+", Some("123")),
            ("/system.slice/slurmstepd.scope/job_123/step_x\u{202e}", Some("123")),
            ("/slurm/uid_root/job_1", None),
        ] {
            assert_eq!(Inside::parse(path).job.as_deref(), job, "{path}");
        }
    }

    #[test]
    fn a_container_of_a_job_has_both_names() {
        let step = "/system.slice/slurmstepd.scope/job_5/step_0";
        let path = format!("{step}/user/task_0/libpod-{ID}.scope/slurmstepd.scope/job_6");
        let inside = Inside::parse(&path);
        assert_eq!((inside.job.as_deref(), inside.container.as_deref()), (Some("5.0"), Some(ID)));
        // A daemon in a container names nothing: it is the container's own.
        let path = format!("/system.slice/docker-{ID}.scope{step}");
        let inside = Inside::parse(&path);
        assert_eq!((inside.job.as_deref(), inside.container.as_deref()), (None, Some(ID)));
    }
}
