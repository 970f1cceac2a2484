//! Who holds a device: tenants open its file, duplicate it, send it to each other, have children
//! that inherit it, change their cgroup, and die with it. The table `holders` has each of these
//! times. On a machine with a root port that counts, they move bytes while they hold the device,
//! beside a tenant that only uses the CPUs: each gets what it moved.

use anyhow::Result;

use super::super::step::{Act, Check, Hold, Move, Step, Tenant, TimedAct, Truth, Work};
use super::super::traffic;
use super::Setting;

/// A device of the machine's own, and one of the model.
const DISK: &str = "/dev/nvme0";
const CARD: &str = "/dev/infiniband/uverbs0";

/// A root port that counts, and its event.
const PORT: (&str, &str) = ("yitian-rootport", "rx_pcie_tlp_data_payload");

/// How late a time may be: less than the tick.
const WITHIN_US: u32 = 2000;

/// Error of a share of the bytes.
const WITHIN: f64 = 0.01;

/// The time between two readings, of the options.
const TICK_NS: u64 = 5_000_000;

/// The end of the name of the step in which two tenants hold the device.
const TWO: &str = "two";

const DURATION_MS: u32 = 2400;

/// The most that an open and a close may take longer beside a recorder, by the cgroup that does it:
/// a quarter more than was measured. The clock of these machines counts instructions, 2 ns each.
const MOST_NS: [(&str, u32); 3] = [("unwatched", 2_700), ("held", 10_300), ("watched", 50_000)];

/// The first series whose guests have that clock.
const COUNTED: &str = "6.5";

/// The number of the first counter.
const COUNTER: u32 = 0;

pub(super) fn build_steps(setting: &Setting<'_>) -> Result<Vec<Step>> {
    let port = setting.machine.instances_of(PORT.0).first().copied();
    let mut options =
        ["-p", "host", "--io", "--tick", "5ms", "--interval", "50ms"].map(str::to_owned).to_vec();
    let mut flows: Vec<Move> = Vec::new();
    let mut truth = None;
    if let Some(port) = port {
        let (spec, counted_truth) = traffic::spec_and_truth(port, PORT.1)?;
        options = ["--io", "--tick", "5ms", "--interval", "50ms", "-e"].map(str::to_owned).to_vec();
        options.push(spec);
        flows.extend(traffic::moves_of_event(port, PORT.1).first());
        truth = Some((port.name.clone(), counted_truth));
    }
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let device = if port.is_some() { CARD } else { DISK };
    let mut steps = vec![
        record_step(
            "holders",
            &options,
            device,
            one_after_the_other(device, &flows),
            truth.as_ref(),
        ),
        record_step(
            "holders-two",
            &options,
            device,
            at_the_same_time(device, &flows),
            truth.as_ref(),
        ),
        record_step(
            "holders-storm",
            &options,
            device,
            storm_tenants(device, &flows),
            truth.as_ref(),
        ),
    ];
    if port.is_none() && setting.is_since(COUNTED)? {
        steps.extend(cost_steps(&options, device));
    }
    Ok(steps)
}

/// What opening a file costs without a recorder, and with one.
fn cost_steps(options: &[&str], device: &str) -> [Step; 2] {
    let work = Work { tenants: opener_tenants(device), settle_ms: 100, ..Work::default() };
    let baseline_name = "holders-unseen";
    let file = format!("/lab/steps/{baseline_name}.json");
    let complete = || Check::Exit { code: 0, says: Vec::new() };
    let baseline = Step {
        work: work.clone(),
        ..Step::plain_command(baseline_name, &["/init", "run", &file], vec![complete()])
    };
    let most = MOST_NS.map(|(cgroup, ns)| (format!("/lab/{cgroup}"), ns)).into();
    let checks = vec![Check::Recorded, Check::OpenCost { than: baseline_name.to_owned(), most }];
    [baseline, Step::for_record("holders-cost", options, work, checks)]
}

/// Each opens and closes one file 10^4 times without a pause: of a device that nobody watches, of
/// one that it holds, and of one that it holds only for these times.
fn opener_tenants(device: &str) -> Vec<Tenant> {
    let storm = |after_ms| (after_ms, Act::Storm { per_ms: 10_000, ms: 1 });
    let tenants = [
        holding_tenant("unwatched", "/dev/null", &[], &[storm(200)]),
        holding_tenant("held", device, &[], &[(100, Act::Open), storm(900)]),
        holding_tenant("watched", device, &[], &[storm(1600)]),
    ];
    // Little besides their opens uses CPU time.
    tenants.into_iter().map(|tenant| Tenant { duty: 0.01, ..tenant }).collect()
}

fn record_step(
    name: &str,
    options: &[&str],
    device: &str,
    tenants: Vec<Tenant>,
    truth: Option<&(String, Truth)>,
) -> Step {
    let mut checks = vec![
        Check::Recorded,
        Check::Conserved,
        Check::Holders { device: device.to_owned(), within_us: WITHIN_US },
    ];
    if let Some((pmu, truth)) = truth {
        let (pmu, event, truth) = (pmu.clone(), PORT.1.to_owned(), truth.clone());
        let of_held = truth.clone();
        checks.push(Check::Exact { counter: COUNTER, pmu, event: event.clone(), truth });
        let (within, shared) = (WITHIN, name.ends_with(TWO));
        checks.push(Check::Held { event, truth: of_held, within, tick_ns: TICK_NS, shared });
    }
    let work = Work { tenants, settle_ms: 100, ..Work::default() };
    Step::for_record(name, options, work, checks)
}

/// A tenant that holds the device at times, and moves bytes in a fifth of the time.
fn holding_tenant(cgroup: &str, device: &str, flows: &[Move], acts: &[(u32, Act)]) -> Tenant {
    let timed = |(after_ms, act): &(u32, Act)| TimedAct { after_ms: *after_ms, act: act.clone() };
    let acts = acts.iter().map(timed).collect();
    Tenant {
        cgroup: Some(cgroup.to_owned()),
        flows: flows.to_vec(),
        duration_ms: DURATION_MS,
        duty: 0.2,
        hold: Some(Hold { path: device.to_owned(), acts }),
        ..Tenant::default()
    }
}

/// A tenant that uses CPU time and holds nothing.
fn busy_tenant() -> Tenant {
    Tenant { cgroup: Some("busy".to_owned()), duration_ms: DURATION_MS, ..Tenant::default() }
}

/// One gives it to the other, which has a child that holds it to its own end, and then dies with
/// it.
fn one_after_the_other(device: &str, flows: &[Move]) -> Vec<Tenant> {
    let socket = || "second".to_owned();
    let first_acts = [
        (200, Act::Open),
        (400, Act::Open),
        (500, Act::Duplicate),
        (600, Act::Close),
        (650, Act::Path),
        (700, Act::Open),
        (1200, Act::Send { socket: socket() }),
        (1200, Act::Close),
    ];
    let second_acts = [
        (0, Act::Receive { socket: socket() }),
        (1600, Act::Fork { ms: 300 }),
        (1700, Act::Close),
        (1800, Act::Open),
    ];
    vec![
        holding_tenant("first", device, flows, &first_acts),
        holding_tenant("second", device, flows, &second_acts),
        busy_tenant(),
    ]
}

/// Two hold it at the same time; one of them then goes to another cgroup.
fn at_the_same_time(device: &str, flows: &[Move]) -> Vec<Tenant> {
    let first_acts = [(200, Act::Open), (1400, Act::Enter { cgroup: "third".to_owned() })];
    let second_acts = [(800, Act::Open), (2000, Act::Close)];
    vec![
        holding_tenant("first", device, flows, &first_acts),
        holding_tenant("second", device, flows, &second_acts),
        busy_tenant(),
    ]
}

/// One holds it, and another process of its cgroup opens and closes it 10^4 times a second.
fn storm_tenants(device: &str, flows: &[Move]) -> Vec<Tenant> {
    let first_acts = [(200, Act::Open), (2000, Act::Close)];
    let second_acts = [(700, Act::Storm { per_ms: 10, ms: 1000 })];
    vec![
        holding_tenant("first", device, flows, &first_acts),
        holding_tenant("first", device, &[], &second_acts),
        busy_tenant(),
    ]
}
