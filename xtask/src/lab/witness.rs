//! Counts of the core PMU for the tenants of a mix: misses that follow their traffic with random
//! variation, drawn from a seed, as on silicon.
//!
//! Tenants differ in bytes per miss, in traffic without misses (prefetches, non-temporal stores,
//! write-backs), and in the variation of their misses.

use anyhow::{Context as _, Result};
use fastrand::Rng;

use super::machine::Instance;
/// Directory of the family of that PMU in a guest.
pub(crate) use super::scenario::misses::CATALOG;
use super::step::{Move, Tenant, Witness};
use super::traffic;

/// The core PMU, in tests/lab/pmus.
pub(crate) const CORE: &str = "lab-core";

/// The event that counts misses.
pub(crate) const MISS: &str = "ll_cache_miss_rd";

/// Bytes of a cache line.
const LINE: f64 = 64.0;

/// Gives every tenant with flows a witness. `bytes` is the number of bytes of one amount of a flow.
/// The draws depend only on `seed` and the order of the tenants.
pub(crate) fn give_witnesses(
    tenants: &mut [Tenant],
    core: &Instance,
    bytes: impl Fn(&Move) -> f64,
    seed: u64,
) -> Result<()> {
    let miss_move = traffic::moves_of_event(core, MISS).first().copied();
    let Move { device, event, .. } = miss_move.with_context(|| format!("nothing moves {MISS}"))?;
    let mut rng = Rng::with_seed(seed);
    let spread = uniform(&mut rng, 0.2, 0.5);
    for tenant in tenants {
        let of_a_miss = LINE * (spread * standard_normal(&mut rng)).exp();
        let unwitnessed = uniform(&mut rng, 0.0, 0.3);
        let noise = uniform(&mut rng, 0.05, 0.2);
        let seed = rng.u64(..);
        // A tenant that moves between sockets has the same flows everywhere, on other devices.
        let flows = tenant.stays.first().map_or(&tenant.flows, |stay| &stay.flows);
        let per_count: Vec<f64> =
            flows.iter().map(|flow| bytes(flow) * (1.0 - unwitnessed) / of_a_miss).collect();
        if !per_count.is_empty() {
            tenant.witness = Some(Witness { device, event, per_count, noise, seed });
        }
    }
    Ok(())
}

fn uniform(rng: &mut Rng, low: f64, high: f64) -> f64 {
    low + (high - low) * rng.f64()
}

/// An approximately standard normal number: the sum of twelve uniform ones.
fn standard_normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| rng.f64()).sum::<f64>() - 6.0
}

#[cfg(test)]
mod tests {
    use uncore_trace_ebpf::stamp::workspace_root;

    use super::*;
    use crate::lab::machine::LabMachine;

    fn given(seed: u64) -> Vec<Option<Witness>> {
        let machine = LabMachine::read(&workspace_root().join("tests/lab"), "grace-2s").unwrap();
        let flow = Move { device: 0, event: 1, source: 0, target: 0, amount: 100 };
        let tenant = Tenant { flows: vec![flow, flow], ..Tenant::default() };
        let mut tenants = vec![tenant; 50];
        tenants.push(Tenant::default());
        give_witnesses(&mut tenants, machine.instances_of(CORE)[0], |_| 32.0, seed).unwrap();
        tenants.into_iter().map(|tenant| tenant.witness).collect()
    }

    #[test]
    fn draws_are_in_their_ranges_and_a_seed_decides_them() {
        let text = |seed| serde_json::to_string(&given(seed)).unwrap();
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
        let witnesses = given(1);
        assert!(witnesses.last().unwrap().is_none(), "a tenant without flows has misses");
        let witnesses: Vec<&Witness> = witnesses.iter().flatten().collect();
        assert_eq!(witnesses.len(), 50);
        for witness in &witnesses {
            assert!((0.05..0.2).contains(&witness.noise) && witness.per_count.len() == 2);
            // Half a miss per 32 bytes, within four times the widest spread.
            assert!((0.5 * 0.7 / 8.0..0.5 * 8.0).contains(&witness.per_count[0]), "{witness:?}");
        }
        let mean = witnesses.iter().map(|its| its.per_count[0]).sum::<f64>() / 50.0;
        assert!((0.3..0.7).contains(&mean), "{mean}");
    }
}
