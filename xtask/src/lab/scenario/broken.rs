//! A wrong bit in a catalog is detected: a recording is exact with the program's own catalog, but
//! not with one whose default filter misses a port.

use anyhow::{Context as _, Result};

use super::super::step::{Check, Step, Tenant, Work};
use super::super::traffic;
use super::Setting;

/// Directory of the broken catalog in the guest.
pub(crate) const CATALOG: &str = "/lab/broken-catalog";

/// The family's file, a text in it, and that text with one bit wrong.
pub(crate) const FAMILY: (&str, &str, &str) =
    ("nvidia_pcie.toml", "root_port=0x3ff", "root_port=0x3fe");

const MODEL: &str = "grace-pcie";
const EVENT: &str = "rd_bytes_loc";

pub(crate) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let instances = setting.machine.instances_of(MODEL);
    let instance = instances.first().with_context(|| format!("no {MODEL}"))?;
    let (spec, truth) = traffic::spec_and_truth(instance, EVENT)?;
    let tenant = Tenant {
        cgroup: Some("broken".to_owned()),
        once: traffic::all_moves(instance),
        ..Tenant::default()
    };
    let work = Work { tenants: vec![tenant], settle_ms: 50, ..Work::default() };
    let exit = Check::Exit { code: 0, says: Vec::new() };
    let (counter, pmu, event) = (0, instance.name.clone(), EVENT.to_owned());
    let differs = Check::Differs { counter, pmu, event, truth };
    let options = ["--catalog", CATALOG, "-e", &spec];
    Ok(vec![Step::for_record("broken-filter", &options, work, vec![exit, differs])])
}
