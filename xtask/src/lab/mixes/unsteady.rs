//! The tenants of mixes whose owners come and go, move, are throttled, or are mostly idle, and of
//! those whose traffic does not follow their CPU time.

use std::f64::consts::TAU;

use super::DEVICE;
use super::draw::{Draw, LONG_PERIOD_US};
use crate::lab::step::{Phase, Stay, Tenant};

/// Number of processes that come and go, and the time from the last one's start to the end, ms.
const JOBS: u32 = 200;
const LAST_JOB_MS: u32 = 200;

/// Length of the steps of drifting rates, ms: too short to be detected one by one.
const DRIFT_MS: u32 = 50;

pub(super) fn draw_short_lived(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = draw_steady(draw, 1.0, 8.0);
    let rate = draw.log_uniform(2.0, 16.0);
    let sockets_and_cpus = draw.all_cpus();
    for (socket, cpu) in sockets_and_cpus.into_iter().cycle().take(JOBS as usize) {
        let rate = rate * draw.log_uniform(0.5, 2.0);
        let job = draw.draw_tenant("jobs", socket, vec![cpu], rate);
        let start_ms = draw.rng.u32(0..draw.duration_ms - LAST_JOB_MS);
        let duration_ms = draw.rng.u32(30..90);
        tenants.push(Tenant { start_ms, duration_ms, late: true, ..job });
    }
    tenants
}

pub(super) fn draw_migrating(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = draw_steady(draw, 1.0, 8.0);
    for number in 0..3 {
        let (rate, reads) = (draw.log_uniform(2.0, 16.0), draw.uniform(0.3, 0.9));
        let mut mover = draw.draw_tenant(&format!("mover-{number}"), 0, draw.socket_cpus(0), rate);
        mover.flows.clear();
        let first_socket = draw.rng.u32(0..draw.socket_count());
        let stays = (0..4).map(|stay| (first_socket + stay) % draw.socket_count());
        mover.stays = stays
            .collect::<Vec<_>>()
            .into_iter()
            .map(|socket| Stay {
                ms: draw.rng.u32(200..1200),
                cpus: draw.socket_cpus(socket),
                flows: draw.memory_flows(socket, rate, reads),
            })
            .collect();
        tenants.push(mover);
    }
    tenants
}

pub(super) fn draw_quota(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.log_uniform(2.0, 16.0);
        let limited = draw.draw_tenant(&format!("limited-{cpu}"), socket, vec![cpu], rate);
        let period_us = draw.rng.u32(10_000..100_000);
        let quota_us = f64::from(period_us) * draw.uniform(0.15, 0.4);
        tenants.push(Tenant { cpu_max: Some(format!("{quota_us:.0} {period_us}")), ..limited });
        let rate = draw.log_uniform(1.0, 8.0);
        tenants.push(draw.draw_tenant(&format!("free-{cpu}"), socket, vec![cpu], rate));
    }
    tenants
}

pub(super) fn draw_drift(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        for name in ["a", "b"] {
            let rate = draw.log_uniform(1.0, 16.0);
            let tenant = draw.draw_tenant(&format!("{name}-{cpu}"), socket, vec![cpu], rate);
            // Up and down by a factor of 2 to 4 once in 3 to 12 s.
            let (depth, begin) = (draw.log_uniform(2.0, 4.0).ln(), draw.uniform(0.0, TAU));
            let cycle_ms = draw.uniform(3000.0, 12_000.0);
            let scale = |step: u32| {
                let turn = TAU * f64::from(step * DRIFT_MS) / cycle_ms;
                Phase { ms: DRIFT_MS, scale: (depth * (begin + turn).sin()).exp() }
            };
            let phases = (0..=draw.duration_ms / DRIFT_MS).map(scale).collect();
            tenants.push(Tenant { phases, ..tenant });
        }
    }
    tenants
}

pub(super) fn draw_low_load(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        for name in ["a", "b", "c"] {
            let rate = draw.log_uniform(2.0, 32.0);
            let tenant = draw.draw_tenant(&format!("{name}-{cpu}"), socket, vec![cpu], rate);
            let duty = draw.uniform(0.01, 0.025);
            let stint_us = Some(draw.rng.u32(100..1000));
            tenants.push(Tenant { duty, stint_us, ..tenant });
        }
    }
    tenants
}

pub(super) fn draw_remote(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    for (socket, cpu) in draw.all_cpus() {
        let (rate, remote_fraction) = (draw.log_uniform(2.0, 16.0), draw.uniform(0.1, 0.6));
        let cgroup = format!("spread-{cpu}");
        let mut spread =
            draw.draw_tenant(&cgroup, socket, vec![cpu], rate * (1.0 - remote_fraction));
        let elsewhere = (socket + 1) % draw.socket_count();
        let reads = draw.uniform(0.3, 0.9);
        spread.flows.extend(draw.memory_flows(elsewhere, rate * remote_fraction, reads));
        tenants.push(spread);
        let rate = draw.log_uniform(1.0, 8.0);
        tenants.push(draw.draw_tenant(&format!("local-{cpu}"), socket, vec![cpu], rate));
    }
    // Twice the flows fill the log in half the time.
    for tenant in &mut tenants {
        tenant.period_us = LONG_PERIOD_US;
    }
    tenants
}

pub(super) fn draw_gpu(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = draw_steady(draw, 1.0, 16.0);
    for tenant in &mut tenants {
        let duty = draw.uniform(0.3, 0.9);
        *tenant = draw.with_pauses(tenant.clone(), duty);
    }
    // It stands for a device: its traffic is not related to any CPU time, least of all its own.
    let cpu = draw.machine.housekeeping_cpu().unwrap_or_default();
    for socket in 0..draw.socket_count() {
        let rate = draw.log_uniform(50.0, 200.0);
        let device = draw.draw_tenant(DEVICE, socket, vec![cpu], rate);
        let phases = draw.random_phases(100..800, 4.0);
        tenants.push(Tenant { duty: 0.05, phases, ..device });
    }
    tenants
}

pub(super) fn draw_kernel(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = draw_steady(draw, 1.0, 8.0);
    for (socket, cpu) in draw.all_cpus() {
        let rate = draw.log_uniform(20.0, 200.0);
        let writer = draw.draw_tenant(&format!("writer-{cpu}"), socket, vec![cpu], rate);
        // Its own CPU time is a small fraction of that of the threads that work for it.
        let (period_us, kernel_us) = (draw.rng.u32(50..150), draw.rng.u32(100..600));
        let duty = draw.uniform(0.03, 0.1);
        tenants.push(Tenant { period_us, kernel_us: Some(kernel_us), duty, ..writer });
    }
    tenants
}

pub(super) fn draw_large(draw: &mut Draw<'_>) -> Vec<Tenant> {
    let mut tenants = Vec::new();
    let sockets_and_cpus = draw.all_cpus();
    for (number, (socket, cpu)) in sockets_and_cpus.into_iter().cycle().take(24).enumerate() {
        let rate = draw.log_uniform(0.5, 20.0);
        let cpus = if draw.rng.f64() < 0.5 { vec![cpu] } else { draw.socket_cpus(socket) };
        let mut tenant = draw.draw_tenant(&format!("t{number}"), socket, cpus, rate);
        if draw.rng.bool() {
            let duty = draw.uniform(0.1, 0.9);
            tenant = draw.with_pauses(tenant, duty);
        }
        tenants.push(tenant);
    }
    tenants
}

/// A tenant on each CPU that never pauses.
fn draw_steady(draw: &mut Draw<'_>, low: f64, high: f64) -> Vec<Tenant> {
    let sockets_and_cpus = draw.all_cpus().into_iter();
    let steady = sockets_and_cpus.map(|(socket, cpu)| {
        let rate = draw.log_uniform(low, high);
        draw.draw_tenant(&format!("steady-{cpu}"), socket, vec![cpu], rate)
    });
    steady.collect()
}
