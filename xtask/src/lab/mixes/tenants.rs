//! The tenants of each mix with constant owners: how many, where, and how their traffic relates to
//! CPU time.

use super::MixCounter;
use super::draw::Draw;
use crate::lab::step::{Burst, Disk, Move, Tenant};

/// The machine's second disk. It is in PCI domain 0, which stands for root port 0 of socket 0, the
/// first source of a move (NVIDIA Grace Performance Tuning Guide).
const DISK: &str = "/dev/vdb";

pub(super) fn draw_spinners(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for socket in 0..draw.socket_count() {
        let (rate, cpus) = (draw.log_uniform(8.0, 32.0), draw.socket_cpus(socket));
        tenants.push(draw.draw_tenant(&format!("heavy-{socket}"), socket, cpus.clone(), rate));
        for cpu in cpus {
            for _ in 0..draw.rng.u32(1..3) {
                let cgroup = format!("spinner-{}", tenants.len());
                tenants.push(draw.draw_tenant(&cgroup, socket, vec![cpu], 0.0));
            }
        }
    }
    tenants
}

pub(super) fn draw_equal_cpu(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.log_uniform(1.0, 4.0);
        tenants.push(draw.draw_tenant(&format!("light-{cpu}"), socket, vec![cpu], rate));
        tenants.push(draw.draw_tenant(&format!("heavy-{cpu}"), socket, vec![cpu], 10.0 * rate));
    }
    tenants
}

pub(super) fn draw_equal_bytes(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.log_uniform(1.0, 4.0);
        tenants.push(draw.draw_tenant(&format!("busy-{cpu}"), socket, vec![cpu], rate));
        let brief = draw.draw_tenant(&format!("brief-{cpu}"), socket, vec![cpu], 10.0 * rate);
        tenants.push(draw.with_pauses(brief, 1.0 / 11.0));
    }
    tenants
}

pub(super) fn draw_bursts(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.log_uniform(1.0, 4.0);
        let mut peaks = draw.draw_tenant(&format!("peaks-{cpu}"), socket, vec![cpu], rate);
        peaks.burst =
            Some(Burst { every: draw.rng.u32(20..80), factor: f64::from(draw.rng.u32(10..40)) });
        tenants.push(peaks);
        let rate = draw.log_uniform(4.0, 16.0);
        let stints = draw.draw_tenant(&format!("stints-{cpu}"), socket, vec![cpu], rate);
        let duty = draw.uniform(0.1, 0.3);
        tenants.push(draw.with_pauses(stints, duty));
        let rate = draw.log_uniform(1.0, 4.0);
        tenants.push(draw.draw_tenant(&format!("steady-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}

pub(super) fn draw_phases(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        for name in ["a", "b"] {
            let rate = draw.log_uniform(1.0, 16.0);
            let mut tenant = draw.draw_tenant(&format!("{name}-{cpu}"), socket, vec![cpu], rate);
            tenant.phases = draw.random_phases(500..1000, 4.0);
            tenants.push(tenant);
        }
    }
    tenants
}

pub(super) fn draw_two_sockets(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for socket in 0..draw.socket_count() {
        let (rate, cpus) = (draw.log_uniform(1.0, 32.0), draw.socket_cpus(socket));
        tenants.push(draw.draw_tenant("both", socket, cpus.clone(), rate));
        for cpu in cpus {
            let rate = draw.log_uniform(1.0, 16.0);
            tenants.push(draw.draw_tenant(&format!("other-{cpu}"), socket, vec![cpu], rate));
        }
    }
    tenants
}

pub(super) fn draw_device(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    let counted: Option<[MixCounter; 2]> = draw.disk.to_vec().try_into().ok();
    for [read, written] in counted.iter().cloned().cycle().take(2) {
        let move_of = |counted: &MixCounter| Move { amount: 1, ..counted.portion };
        let disk = Disk {
            path: DISK.to_owned(),
            bytes: 4096 << draw.rng.u32(2..6),
            write_every: draw.rng.u32(2..6),
            pause_us: draw.rng.u32(100..600),
            read: Some(move_of(&read)),
            written: Some(move_of(&written)),
        };
        let cpu = draw.rng.choice(draw.socket_cpus(0)).unwrap_or_default();
        let reader = draw.draw_tenant(&format!("disk-{}", tenants.len()), 0, vec![cpu], 0.0);
        tenants.push(Tenant { disk: Some(disk), ..reader });
    }
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.log_uniform(1.0, 16.0);
        tenants.push(draw.draw_tenant(&format!("burner-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}

pub(super) fn draw_random(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (number, (socket, cpu)) in draw.all_cpus().into_iter().cycle().take(10).enumerate() {
        let rate = draw.log_uniform(0.5, 20.0);
        let cpus = if draw.rng.f64() < 0.6 { vec![cpu] } else { draw.socket_cpus(socket) };
        let mut tenant = draw.draw_tenant(&format!("t{}", number % 8), socket, cpus, rate);
        if draw.rng.bool() {
            let duty = draw.uniform(0.05, 0.9);
            tenant = draw.with_pauses(tenant, duty);
        }
        match draw.rng.u32(0..6) {
            0 => tenant.phases = draw.random_phases(500..2000, 2.0),
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

pub(super) fn draw_inseparable(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.log_uniform(1.0, 16.0);
        tenants.push(draw.draw_tenant(&format!("own-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}
