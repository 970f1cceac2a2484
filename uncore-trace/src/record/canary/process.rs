//! The process of the canary: prepares, waits, moves bytes in bursts until its standard input ends.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fastrand::Rng;

use super::super::child::{self, OrderLines, send_line};
use super::cgroup::CanaryCgroup;
use super::disk::DiskReader;
use super::memory::{MemoryReader, run_on};
use super::network::LoopbackSender;
use super::orders::{CanaryMessage, Orders};
use super::pace::Pace;
use crate::clock::mono_ns;
use crate::confine::{self, ThreadNeeds};
use crate::schema::canary::{Burst, CanaryKind, Skipped};

/// The kinds of traffic that the canary can make.
#[derive(Debug)]
struct Movers {
    memory: Option<MemoryReader>,
    disk: Option<DiskReader>,
    network: Option<LoopbackSender>,
    /// For other kinds than memory.
    cpus: Vec<u32>,
}

pub(super) fn main() -> ExitCode {
    child::run_child(c"uncore-canary", run_canary, |why| CanaryMessage::Failed { why })
}

fn run_canary() -> Result<()> {
    let mut lines = OrderLines::default();
    let orders = lines.wait_for_line(i64::MAX)?.context("the recorder sent no orders")?;
    let orders: Orders = serde_json::from_str(&orders).context("cannot understand orders")?;
    let cgroup = CanaryCgroup::enter_new(&orders.mount, &orders.view)?;
    let mut random = Rng::new();
    let mut skipped = Vec::new();
    let free_memory = cgroup.free_memory(&orders.mount);
    let mut movers = Movers::new(orders, free_memory, &mut random, &mut skipped);
    // Its cgroup is left and removed by the keeper: all else that it uses is open.
    confine::restrict_process(&ThreadNeeds::default());
    send_line(&CanaryMessage::Ready { cgroup: cgroup.path.clone(), skipped })?;
    // No line is the end: the recording never began.
    if lines.wait_for_line(i64::MAX)?.is_some() {
        move_bursts(&mut movers, &mut lines, &mut random)?;
    }
    send_line(&CanaryMessage::Ended)
}

/// Moves bytes until standard input ends.
fn move_bursts(movers: &mut Movers, lines: &mut OrderLines, random: &mut Rng) -> Result<()> {
    let mut pace = Pace::new(mono_ns());
    let mut round: Vec<CanaryKind> = Vec::new();
    loop {
        if round.is_empty() {
            round = movers.possible_kinds();
            random.shuffle(&mut round);
        }
        let (burst_begin_ns, length_ns) = pace.next_burst(mono_ns(), random);
        // No other orders follow.
        lines.wait_for_line(burst_begin_ns)?;
        if lines.has_ended {
            return Ok(());
        }
        let Some(traffic) = round.pop() else {
            // There is nothing to move: only the end is waited for.
            continue;
        };
        let begin_ns = mono_ns();
        let moved = movers.move_burst(traffic, length_ns, random);
        let end_ns = mono_ns();
        // Not the time that it took: while it waits for its CPU or disk it moves nothing.
        pace.note_burst(length_ns);
        // A burst that failed moved an unknown number of bytes: it has no row.
        match moved {
            Ok((cpu, node, bytes)) => {
                send_line(&CanaryMessage::Burst(Burst {
                    kind: traffic,
                    begin_ns,
                    end_ns,
                    cpu,
                    node,
                    bytes,
                }))?;
            }
            Err(error) => {
                movers.give_up(traffic);
                send_line(&CanaryMessage::GaveUp { kind: traffic, why: format!("{error:#}") })?;
            }
        }
    }
}

impl Movers {
    /// Prepares what the orders ask for. What cannot be moved is in `skipped`.
    fn new(
        orders: Orders,
        free_memory: Option<u64>,
        random: &mut Rng,
        skipped: &mut Vec<Skipped>,
    ) -> Self {
        let disk = orders.disk.map(|disk_orders| DiskReader::new(&disk_orders, random));
        let network = orders.network.map(LoopbackSender::new);
        let memory = orders.memory.map(|orders| MemoryReader::new(orders, free_memory));
        let disk = or_skip(CanaryKind::Disk, disk, skipped);
        let network = or_skip(CanaryKind::Network, network, skipped);
        let memory = or_skip(CanaryKind::Memory, memory, skipped);
        Self { memory, disk, network, cpus: orders.cpus }
    }

    fn possible_kinds(&self) -> Vec<CanaryKind> {
        let memory = self.memory.as_ref().map(|_| CanaryKind::Memory);
        let disk = self.disk.as_ref().map(|_| CanaryKind::Disk);
        let network = self.network.as_ref().map(|_| CanaryKind::Network);
        [memory, disk, network].into_iter().flatten().collect()
    }

    /// Does not move this kind again.
    fn give_up(&mut self, traffic: CanaryKind) {
        match traffic {
            CanaryKind::Memory => self.memory = None,
            CanaryKind::Disk => self.disk = None,
            CanaryKind::Network => self.network = None,
        }
    }

    /// Moves bytes of a kind for `length_ns`. Returns the CPU, the node of an array, and the bytes.
    fn move_burst(
        &mut self,
        traffic: CanaryKind,
        length_ns: i64,
        random: &mut Rng,
    ) -> Result<(u32, Option<u32>, u64)> {
        let seconds = length_ns as f64 / 1e9;
        match traffic {
            CanaryKind::Memory => {
                let memory = self.memory.as_mut().context("no memory")?;
                let (cpu, node, array) = memory.choose_array(random)?;
                let chunks = memory.chunks_in(seconds);
                Ok((cpu, node, move_evenly(chunks, length_ns, || Ok(memory.read_chunk(array)))?))
            }
            CanaryKind::Disk => {
                let cpu = run_on_any(&self.cpus, random)?;
                let disk = self.disk.as_mut().context("no disk")?;
                let chunks = disk.chunks_in(seconds);
                Ok((cpu, None, move_evenly(chunks, length_ns, || disk.read_chunk())?))
            }
            CanaryKind::Network => {
                let cpu = run_on_any(&self.cpus, random)?;
                let network = self.network.as_mut().context("no network")?;
                let packets = network.packets_in(seconds);
                Ok((cpu, None, move_evenly(packets, length_ns, || network.send_packet())?))
            }
        }
    }
}

/// What moves a kind of traffic; if it cannot be made, the kind is in `skipped`.
fn or_skip<T>(
    traffic: CanaryKind,
    mover: Option<Result<T>>,
    skipped: &mut Vec<Skipped>,
) -> Option<T> {
    let skip = |error| skipped.push(Skipped { kind: traffic, why: format!("{error:#}") });
    mover?.map_err(skip).ok()
}

/// Moves this process to any of these CPUs.
fn run_on_any(cpus: &[u32], random: &mut Rng) -> Result<u32> {
    let cpu = *random.choice(cpus).context("no CPU")?;
    run_on(cpu)?;
    Ok(cpu)
}

/// Moves `count` chunks in equal steps over `length_ns`; returns their bytes.
fn move_evenly(
    count: u64,
    length_ns: i64,
    mut move_chunk: impl FnMut() -> Result<u64>,
) -> Result<u64> {
    let begin_ns = mono_ns();
    let mut bytes = 0;
    for done in 1..=count {
        bytes += move_chunk()?;
        let due_ns = begin_ns + (length_ns as f64 * done as f64 / count as f64) as i64;
        let left_ns = u64::try_from(due_ns - mono_ns()).unwrap_or(0);
        if done < count && left_ns > 0 {
            std::thread::sleep(Duration::from_nanos(left_ns));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_spread_over_the_burst() {
        let begin = mono_ns();
        let bytes = move_evenly(4, 8_000_000, || Ok(10)).unwrap();
        let took = mono_ns() - begin;
        assert!(bytes == 40 && took >= 6_000_000, "{bytes} {took}");
        assert!(move_evenly(1, 1, || anyhow::bail!("no")).is_err());
    }
}
