//! The tenants of each mix with constant owners: how many, where, and how their traffic relates to
//! CPU time.

use super::Counted;
use super::draw::Draw;
use crate::lab::step::{Burst, Disk, Move, Tenant};

/// The machine's second disk. It is in PCI domain 0, which stands for root port 0 of socket 0, the
/// first source of a move (NVIDIA Grace Performance Tuning Guide).
const DISK: &str = "/dev/vdb";

pub(super) fn spinners(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for socket in 0..draw.sockets() {
        let (rate, cpus) = (draw.over(8.0, 32.0), draw.cpus(socket));
        tenants.push(draw.tenant(&format!("heavy-{socket}"), socket, cpus.clone(), rate));
        for cpu in cpus {
            for _ in 0..draw.rng.u32(1..3) {
                let cgroup = format!("spinner-{}", tenants.len());
                tenants.push(draw.tenant(&cgroup, socket, vec![cpu], 0.0));
            }
        }
    }
    tenants
}

pub(super) fn equal_cpu(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 4.0);
        tenants.push(draw.tenant(&format!("light-{cpu}"), socket, vec![cpu], rate));
        tenants.push(draw.tenant(&format!("heavy-{cpu}"), socket, vec![cpu], 10.0 * rate));
    }
    tenants
}

pub(super) fn equal_bytes(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 4.0);
        tenants.push(draw.tenant(&format!("busy-{cpu}"), socket, vec![cpu], rate));
        let brief = draw.tenant(&format!("brief-{cpu}"), socket, vec![cpu], 10.0 * rate);
        tenants.push(draw.resting(brief, 1.0 / 11.0));
    }
    tenants
}

pub(super) fn bursts(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 4.0);
        let mut peaks = draw.tenant(&format!("peaks-{cpu}"), socket, vec![cpu], rate);
        peaks.burst =
            Some(Burst { every: draw.rng.u32(20..80), factor: f64::from(draw.rng.u32(10..40)) });
        tenants.push(peaks);
        let rate = draw.over(4.0, 16.0);
        let stints = draw.tenant(&format!("stints-{cpu}"), socket, vec![cpu], rate);
        let duty = draw.between(0.1, 0.3);
        tenants.push(draw.resting(stints, duty));
        let rate = draw.over(1.0, 4.0);
        tenants.push(draw.tenant(&format!("steady-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}

pub(super) fn phases(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        for name in ["a", "b"] {
            let rate = draw.over(1.0, 16.0);
            let mut tenant = draw.tenant(&format!("{name}-{cpu}"), socket, vec![cpu], rate);
            tenant.phases = draw.phases(500..1000, 4.0);
            tenants.push(tenant);
        }
    }
    tenants
}

pub(super) fn two_sockets(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for socket in 0..draw.sockets() {
        let (rate, cpus) = (draw.over(1.0, 32.0), draw.cpus(socket));
        tenants.push(draw.tenant("both", socket, cpus.clone(), rate));
        for cpu in cpus {
            let rate = draw.over(1.0, 16.0);
            tenants.push(draw.tenant(&format!("other-{cpu}"), socket, vec![cpu], rate));
        }
    }
    tenants
}

pub(super) fn device(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    let counted: Option<[Counted; 2]> = draw.disk.to_vec().try_into().ok();
    for [read, written] in counted.iter().cloned().cycle().take(2) {
        let one = |counted: &Counted| Move { amount: 1, ..counted.portion };
        let disk = Disk {
            path: DISK.to_owned(),
            bytes: 4096 << draw.rng.u32(2..6),
            write_every: draw.rng.u32(2..6),
            pause_us: draw.rng.u32(100..600),
            read: Some(one(&read)),
            written: Some(one(&written)),
        };
        let cpu = draw.rng.choice(draw.cpus(0)).unwrap_or_default();
        let reader = draw.tenant(&format!("disk-{}", tenants.len()), 0, vec![cpu], 0.0);
        tenants.push(Tenant { disk: Some(disk), ..reader });
    }
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 16.0);
        tenants.push(draw.tenant(&format!("burner-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}

pub(super) fn random(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (number, (socket, cpu)) in draw.all_cpus().into_iter().cycle().take(10).enumerate() {
        let rate = draw.over(0.5, 20.0);
        let cpus = if draw.rng.f64() < 0.6 { vec![cpu] } else { draw.cpus(socket) };
        let mut tenant = draw.tenant(&format!("t{}", number % 8), socket, cpus, rate);
        if draw.rng.bool() {
            let duty = draw.between(0.05, 0.9);
            tenant = draw.resting(tenant, duty);
        }
        match draw.rng.u32(0..6) {
            0 => tenant.phases = draw.phases(500..2000, 2.0),
            1 => {
                let (every, factor) = (draw.rng.u32(10..80), draw.rng.u32(2..20).into());
                tenant.burst = Some(Burst { every, factor });
            }
            _ => {}
        }
        tenant.start_ms = if draw.rng.f64() < 0.2 { draw.rng.u32(0..2000) } else { 0 };
        tenant.duration_ms -= tenant.start_ms;
        tenants.push(tenant);
    }
    tenants
}

pub(super) fn inseparable(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.over(1.0, 16.0);
        tenants.push(draw.tenant(&format!("own-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}
