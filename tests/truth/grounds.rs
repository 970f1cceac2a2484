//! What is true of the machines of each ground.

use std::collections::{BTreeMap, BTreeSet};

use super::bench::ground::{self, Ground, LateBytes};
use super::bench::random::Random;
use super::bench::schedule::{self, Schedule};
use super::bench::tenants::{DrawnMachine, ThreadKind};
use super::bench::ticks::{ByteMover, DrawnTick};
use super::bench::traffic::{DrawnTraffic, Piece};
use super::bench::{DrawnCase, Pauses, SOCKETS, TICK_NS};
use super::{case, ticks};

/// A machine with this ground. Its links are wide and its rates hardly change.
fn ground_case(ground: Ground) -> DrawnCase {
    DrawnCase { ground, cpus: 6, tenants: 12, plain: true, peak: 1e9, ..case() }
}

fn user_tenants(case: &DrawnCase) -> usize {
    case.tenants * SOCKETS
}

/// What each tenant moves in a tick; the last is the kernel.
fn moved_by_tenant(case: &DrawnCase, tenant_of: &[usize], tick: &DrawnTick) -> Vec<f64> {
    let mut moved = vec![0.0; user_tenants(case) + 1];
    for part in &tick.moved_parts {
        if let ByteMover::Process(process) = part.mover {
            moved[tenant_of[process as usize]] += part.bytes;
        }
    }
    moved
}

fn drawn_machine(case: &DrawnCase) -> DrawnMachine {
    DrawnMachine::draw(case, &mut Random::for_place(case.seed, 1, 0))
}

fn drawn_schedule(case: &DrawnCase, machine: &DrawnMachine) -> Schedule {
    let len_ns = case.tick_count() as u64 * TICK_NS;
    schedule::simulate(machine, len_ns, Random::for_place(case.seed, 2, 0))
}

/// All pieces of a case, by tick.
fn drawn_pieces(case: &DrawnCase) -> Vec<Vec<Piece>> {
    let machine = drawn_machine(case);
    let schedule = drawn_schedule(case, &machine);
    let mut random = Random::for_place(case.seed, 3, 0);
    let traffic = DrawnTraffic::draw(case, &machine, &schedule, &mut random);
    let mut positions = traffic.start_positions();
    let mut pieces_of = |tick| {
        let mut pieces = Vec::new();
        traffic.give_pieces(tick, &mut positions, |piece| pieces.push(piece));
        pieces
    };
    (0..case.tick_count()).map(&mut pieces_of).collect()
}

fn piece_bytes(piece: &Piece) -> f64 {
    piece.bytes.iter().sum()
}

#[test]
fn a_busy_sibling_lowers_what_a_thread_moves() {
    let case = ground_case(Ground::Hyperthreads);
    let base = drawn_pieces(&ground_case(Ground::Base));
    let mut lowered = 0;
    for (pieces, base_pieces) in drawn_pieces(&case).iter().zip(&base) {
        for (piece, base_piece) in pieces.iter().zip(base_pieces) {
            let is_sibling =
                |other: &&Piece| Some(other.cpu) == ground::sibling_of(&case, piece.cpu);
            let busy: u64 =
                pieces.iter().filter(is_sibling).map(|piece| piece.end - piece.begin).sum();
            let expected = 1.0 - 0.45 * busy as f64 / TICK_NS as f64;
            let factor = piece_bytes(piece) / piece_bytes(base_piece);
            assert!((factor - expected).abs() < 1e-4, "{factor} {expected}");
            lowered += usize::from(expected < 0.6);
        }
    }
    assert!(lowered > 100, "{lowered}");
    assert_ne!(case.ground.core_siblings(&case), Ground::Base.core_siblings(&case));
}

#[test]
fn phases_change_all_rates_by_one_factor() {
    let base = drawn_pieces(&ground_case(Ground::Base));
    let mut factors = Vec::new();
    for (pieces, base_pieces) in drawn_pieces(&ground_case(Ground::Phases)).iter().zip(&base) {
        let factor_of = |(piece, base): (&Piece, &Piece)| piece_bytes(piece) / piece_bytes(base);
        let of_tick: Vec<f64> = pieces.iter().zip(base_pieces).map(factor_of).collect();
        assert!(of_tick.iter().all(|factor| (factor / of_tick[0] - 1.0).abs() < 1e-6));
        factors.extend(of_tick.first().map(|factor| (factor * 1e4) as u64));
    }
    factors.dedup();
    assert!((2..20).contains(&factors.len()), "{factors:?}");
}

#[test]
fn a_full_link_moves_no_more_than_its_limit() {
    let bytes_of = |ground| -> Vec<f64> {
        let case = DrawnCase { plain: false, ..ground_case(ground) };
        let near = |piece: &Piece| piece.bytes[0];
        drawn_pieces(&case).iter().map(|pieces| pieces.iter().map(near).sum()).collect()
    };
    let (demand, moved) = (bytes_of(Ground::Base), bytes_of(Ground::FullLink));
    let limit = 1.15 * demand.iter().sum::<f64>() / demand.len() as f64;
    let most = moved.iter().copied().fold(0.0, f64::max);
    assert!((0.8..1.0001).contains(&(most / limit)), "{most} {limit}");
    assert!(demand.iter().any(|demand| *demand > 1.1 * limit));
}

#[test]
fn late_bytes_come_later_and_none_is_lost() {
    let case = ground_case(Ground::Late);
    let tenant_of = drawn_schedule(&case, &drawn_machine(&case)).tenant_of;
    let mut late_bytes = LateBytes::draw(&case);
    let (mut asked, mut moved) = (0.0, 0.0);
    let mut late_tenants = BTreeSet::new();
    for (tick, pieces) in drawn_pieces(&case).into_iter().enumerate() {
        for mut piece in pieces {
            asked += piece_bytes(&piece);
            let before = piece_bytes(&piece);
            late_bytes.hold_back(tick, tenant_of[piece.process], case.cpus, &mut piece);
            moved += piece_bytes(&piece);
            if piece_bytes(&piece) < 0.5 * before {
                late_tenants.insert(tenant_of[piece.process]);
            }
        }
        let arrived = late_bytes.take_arrived(tick);
        assert!(tick >= 5 || arrived.is_empty());
        moved += arrived.iter().map(|part| part.bytes).sum::<f64>();
    }
    let after = (0..5000).flat_map(|tick| late_bytes.take_arrived(case.tick_count() + tick));
    let pending: f64 = after.map(|part| part.bytes).sum();
    assert!(pending > 0.0 && ((moved + pending) / asked - 1.0).abs() < 1e-9);
    // Five of twelve on each socket; some may not run.
    assert!((6..=10).contains(&late_tenants.len()), "{late_tenants:?}");
}

#[test]
fn devices_of_tenants_that_hardly_run_move_much() {
    let case = DrawnCase { seconds: 3.0, ..ground_case(Ground::Devices) };
    let (drawn, _) = ticks(&case);
    let (mut moved, mut of_devices) = (0.0, 0.0);
    let mut owners = BTreeSet::new();
    for part in drawn.iter().flat_map(|tick| &tick.moved_parts) {
        if part.ns > 0 {
            moved += part.bytes;
        } else {
            of_devices += part.bytes;
            owners.insert(format!("{:?}", part.mover));
        }
    }
    assert!((of_devices / moved - 0.45).abs() < 1e-3, "{of_devices} {moved}");
    // One of twelve on each socket.
    assert_eq!(owners.len(), SOCKETS);
}

#[test]
fn jobs_of_cron_begin_together_and_replicas_run_in_step() {
    for (ground, members) in [(Ground::Cron, 2 * 4), (Ground::Replicas, 6)] {
        let case = DrawnCase { seconds: 6.0, ..ground_case(ground) };
        let machine = drawn_machine(&case);
        let schedule = drawn_schedule(&case, &machine);
        let gang = ThreadKind::Gang(machine.gangs.len() - 1);
        let mut begins = BTreeMap::new();
        for stretch in schedule.stretches.iter().flatten() {
            let thread = &machine.threads[stretch.thread as usize];
            if thread.thread_kind == gang {
                let begin: &mut u64 = begins.entry(thread.tenant).or_insert(u64::MAX);
                *begin = stretch.begin_ns.min(*begin);
            }
        }
        assert_eq!(begins.len(), members, "{ground:?}");
        let (first, last) = (begins.values().min().unwrap(), begins.values().max().unwrap());
        assert!(last - first < 30_000_000, "{ground:?} {begins:?}");
    }
}

#[test]
fn rates_of_tenants_are_as_the_ground_says() {
    let case = DrawnCase { tenants: 200, ..ground_case(Ground::Pareto) };
    let mut rates: Vec<f64> =
        drawn_machine(&case).tenants[..400].iter().map(|tenant| tenant.rate).collect();
    rates.sort_by(f64::total_cmp);
    // Half of a Pareto distribution is below the least value times 2^(1/1.05).
    assert!(rates[0] >= 0.05 && (0.08..0.12).contains(&rates[200]), "{}", rates[200]);

    let case = ground_case(Ground::Dominant);
    let tenant_of = drawn_schedule(&case, &drawn_machine(&case)).tenant_of;
    let (drawn, _) = ticks(&case);
    let mut moved = vec![0.0; user_tenants(&case) + 1];
    for tick in &drawn {
        let of_tick = moved_by_tenant(&case, &tenant_of, tick);
        moved.iter_mut().zip(of_tick).for_each(|(sum, bytes)| *sum += bytes);
    }
    for tenants in moved[..user_tenants(&case)].chunks(case.tenants) {
        let most = tenants.iter().copied().fold(0.0, f64::max);
        let part = most / tenants.iter().sum::<f64>();
        assert!((0.45..0.75).contains(&part), "{part}");
    }
}

#[test]
fn noise_differs_between_tenants() {
    let case = DrawnCase { pauses: Pauses::Never, plain: false, ..ground_case(Ground::Base) };
    let machine = drawn_machine(&case);
    let mut by_tenant = vec![Vec::new(); user_tenants(&case)];
    for piece in drawn_pieces(&case).iter().flatten() {
        if let Some(logs) = by_tenant.get_mut(machine.threads[piece.thread].tenant) {
            logs.push((piece_bytes(piece) / (piece.end - piece.begin) as f64).ln());
        }
    }
    // The median of the differences of neighbours, of which bursts and phases are few.
    let deviation = |logs: &Vec<f64>| {
        let mut steps: Vec<f64> = logs.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
        steps.sort_by(f64::total_cmp);
        steps[steps.len() / 2] / (0.6745 * 2.0_f64.sqrt())
    };
    let mut deviations: Vec<f64> = by_tenant.iter().map(deviation).collect();
    deviations.sort_by(f64::total_cmp);
    let (least, most) = (deviations[0], deviations[deviations.len() - 1]);
    assert!((0.05..0.2).contains(&least) && (0.5..1.1).contains(&most), "{deviations:?}");
}
