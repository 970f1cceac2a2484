//! Who runs when on a drawn machine: a scheduler like EEVDF, event by event.
//!
//! Each CPU has a queue. Of the threads whose virtual time is not ahead of the queue's mean, the
//! one with the earliest virtual deadline runs, until it sleeps or its slice of [`SLICE_NS`] is
//! used up. That is noticed at the CPU's next timer tick, [`TIMER_NS`] apart, at times of its own.
//! A thread wakes on its last CPU if that is idle, else on an idle one of its socket if one of
//! [`SEARCHED`] is, else where the fewest of three wait. CPUs without work take a thread from
//! others of their socket, and others do every 10 to 30 ms. A tenant that has used its quota waits
//! for the next period.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::SOCKETS;
use super::random::Random;
use super::tenants::{DrawnMachine, QUOTA_NS, ThreadKind};

const SLICE_NS: i64 = 2_800_000;
const TIMER_NS: u64 = 1_000_000;
/// CPUs that are looked at to find an idle one.
const SEARCHED: usize = 16;
/// A CPU is looked at this often at least, ns.
const POLL_NS: u64 = 20_000_000;
const FOREVER: i64 = 1 << 60;

/// A time for which a CPU runs a thread, ns from the begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) thread: u32,
    pub(crate) process: u32,
}

#[derive(Debug)]
pub(crate) struct Schedule {
    /// By CPU, in order.
    pub(crate) stretches: Vec<Vec<Stretch>>,
    /// By process.
    pub(crate) tenant_of: Vec<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SimulationEvent {
    Wake(usize),
    Gang(usize),
    /// A CPU's task may have ended; void if the number is not that of the last such event.
    Look(usize, u64),
    Balance(usize),
    Refill(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadState {
    Sleeping,
    Ready,
    /// Its tenant has no quota left.
    Parked,
}

#[derive(Debug)]
struct SimulatedThread {
    state: ThreadState,
    process: u32,
    /// Where it last ran or waits.
    cpu: usize,
    /// Virtual time, and when its slice ends in it.
    time: i64,
    deadline: i64,
    /// How long it will still run, and its process live, ns.
    remaining_ns: i64,
    life: i64,
}

#[derive(Debug, Default)]
struct SimulatedCpu {
    /// When its timer ticks, within [`TIMER_NS`].
    phase: u64,
    running: Option<usize>,
    since: u64,
    /// Up to when the time of the running thread is counted.
    counted: u64,
    queue: Vec<usize>,
    looks: u64,
}

impl SimulatedCpu {
    fn next_tick(&self, time_ns: u64) -> u64 {
        time_ns.saturating_sub(self.phase).div_ceil(TIMER_NS) * TIMER_NS + self.phase
    }

    fn runnable_count(&self) -> usize {
        self.queue.len() + usize::from(self.running.is_some())
    }
}

struct Simulator<'a> {
    machine: &'a DrawnMachine,
    random: Random,
    now_ns: u64,
    events: BinaryHeap<Reverse<(u64, u64, SimulationEvent)>>,
    pushed: u64,
    cpus: Vec<SimulatedCpu>,
    threads: Vec<SimulatedThread>,
    used: Vec<u64>,
    throttled: Vec<bool>,
    schedule: Schedule,
}

/// Runs a machine for `len_ns`.
pub(crate) fn simulate(machine: &DrawnMachine, len_ns: u64, mut random: Random) -> Schedule {
    let cpu = |random: &mut Random| SimulatedCpu {
        phase: random.index_below(TIMER_NS as usize) as u64,
        ..SimulatedCpu::default()
    };
    let cpus: Vec<SimulatedCpu> = (0..machine.all_cpus()).map(|_| cpu(&mut random)).collect();
    let mut tenant_of = vec![0; machine.processes];
    let mut threads = Vec::new();
    for thread in &machine.threads {
        tenant_of[thread.process] = thread.tenant;
        let home = thread.socket * machine.cpus + random.index_below(machine.cpus);
        threads.push(SimulatedThread {
            state: ThreadState::Sleeping,
            process: thread.process as u32,
            cpu: thread.pin.unwrap_or(home),
            time: 0,
            deadline: 0,
            remaining_ns: 0,
            life: draw_lifetime(thread.life, &mut random),
        });
    }
    let schedule = Schedule { stretches: vec![Vec::new(); cpus.len()], tenant_of };
    let tenants = machine.tenants.len();
    let mut simulator = Simulator {
        machine,
        random,
        now_ns: 0,
        events: BinaryHeap::new(),
        pushed: 0,
        cpus,
        threads,
        used: vec![0; tenants],
        throttled: vec![false; tenants],
        schedule,
    };
    simulator.push_first_events();
    while let Some(Reverse((event_ns, _, event))) = simulator.events.pop() {
        if event_ns >= len_ns {
            break;
        }
        simulator.now_ns = event_ns;
        simulator.handle_event(event);
    }
    simulator.now_ns = len_ns;
    (0..machine.all_cpus()).for_each(|cpu| simulator.end_stretch(cpu));
    simulator.schedule
}

fn draw_lifetime(mean: f64, random: &mut Random) -> i64 {
    (mean * random.log_normal(-0.3, 0.8)) as i64 + 1_000_000
}

impl Simulator<'_> {
    fn push_event(&mut self, time: u64, event: SimulationEvent) {
        self.pushed += 1;
        self.events.push(Reverse((time, self.pushed, event)));
    }

    /// Pushes an event after a random part of `limit_ns` ns.
    fn push_soon(&mut self, limit_ns: f64, event: SimulationEvent) {
        let time = self.random.uniform(0.0, limit_ns) as u64;
        self.push_event(time, event);
    }

    fn push_first_events(&mut self) {
        let machine = self.machine;
        for (id, thread) in machine.threads.iter().enumerate() {
            match thread.thread_kind {
                ThreadKind::Gang(_) => {}
                ThreadKind::Spin => self.push_soon(20e6, SimulationEvent::Wake(id)),
                _ => self.push_soon(thread.run + thread.pause, SimulationEvent::Wake(id)),
            }
        }
        (0..self.cpus.len()).for_each(|cpu| self.push_soon(20e6, SimulationEvent::Balance(cpu)));
        for (id, _) in machine.tenants.iter().enumerate().filter(|(_, tenant)| tenant.quota > 0) {
            self.push_soon(QUOTA_NS as f64, SimulationEvent::Refill(id));
        }
        for (id, (period, _)) in machine.gangs.iter().enumerate() {
            self.push_soon(*period, SimulationEvent::Gang(id));
        }
    }

    fn handle_event(&mut self, event: SimulationEvent) {
        match event {
            SimulationEvent::Wake(id) => self.wake_thread(id),
            SimulationEvent::Gang(gang) => {
                let (period, spread) = self.machine.gangs[gang];
                let wait_ns = period * (1.0 + spread * self.random.uniform(-0.5, 0.5));
                self.push_event(self.now_ns + wait_ns as u64, event);
                for (id, thread) in self.machine.threads.iter().enumerate() {
                    if thread.thread_kind == ThreadKind::Gang(gang) {
                        self.wake_thread(id);
                    }
                }
            }
            SimulationEvent::Look(cpu, number) if number == self.cpus[cpu].looks => {
                self.check_turn(cpu);
            }
            SimulationEvent::Look(..) => {}
            SimulationEvent::Balance(cpu) => self.balance_cpu(cpu),
            SimulationEvent::Refill(tenant) => self.refill_quota(tenant),
        }
    }

    fn wake_thread(&mut self, id: usize) {
        if self.threads[id].state != ThreadState::Sleeping {
            return;
        }
        let thread = &self.machine.threads[id];
        let random = &mut self.random;
        let run_ns = match thread.thread_kind {
            ThreadKind::Spin => FOREVER,
            ThreadKind::Serve => (thread.run * random.log_normal(-0.18, 0.6)) as i64 + 2000,
            ThreadKind::Batch => random.exponential(thread.run) as i64 + 5000,
            ThreadKind::Short => {
                (random.exponential(thread.run) as i64 + 5000).min(self.threads[id].life.max(1000))
            }
            ThreadKind::Periodic => (thread.run * random.normal(1.0, 0.15).max(0.1)) as i64,
            ThreadKind::Gang(_) => (thread.run * random.uniform(0.5, 1.5)) as i64,
        };
        self.threads[id].remaining_ns = run_ns;
        if self.throttled[thread.tenant] {
            self.threads[id].state = ThreadState::Parked;
            return;
        }
        let cpu = self.choose_wake_cpu(id);
        self.enqueue_thread(id, cpu);
        let running = self.cpus[cpu].running.map(|running| self.machine.threads[running].urgent);
        match running {
            Some(urgent) if urgent || !thread.urgent => self.plan_look(cpu),
            _ => self.choose_thread(cpu),
        }
    }

    /// The CPU on which a thread wakes.
    fn choose_wake_cpu(&mut self, id: usize) -> usize {
        let thread = &self.machine.threads[id];
        let last_cpu = self.threads[id].cpu;
        if thread.pin.is_some() || self.cpus[last_cpu].running.is_none() {
            return last_cpu;
        }
        let per_socket = self.machine.cpus;
        let moves = thread.spans && self.random.draw_bool(0.1);
        let socket = if moves { self.random.index_below(SOCKETS) } else { last_cpu / per_socket };
        let start = self.random.index_below(per_socket);
        let of_socket = |offset: usize| socket * per_socket + offset % per_socket;
        let mut searched = (0..SEARCHED.min(per_socket)).map(|step| of_socket(start + step));
        if let Some(idle) = searched.find(|cpu| self.cpus[*cpu].running.is_none()) {
            return idle;
        }
        let candidates = [0; 2].map(|_| of_socket(self.random.index_below(per_socket)));
        let compared = [last_cpu, candidates[0], candidates[1]];
        compared.into_iter().min_by_key(|cpu| self.cpus[*cpu].queue.len()).unwrap_or(last_cpu)
    }

    /// Mean virtual time of the threads of a CPU.
    fn mean_virtual_time(&self, cpu: usize) -> Option<f64> {
        let ids = self.cpus[cpu].running.iter().chain(&self.cpus[cpu].queue);
        let sum: f64 = ids.map(|id| self.threads[*id].time as f64).sum();
        (self.cpus[cpu].runnable_count() > 0).then(|| sum / self.cpus[cpu].runnable_count() as f64)
    }

    /// Puts a thread into the queue of a CPU, at the mean of its virtual time.
    fn enqueue_thread(&mut self, id: usize, cpu: usize) {
        self.count_time(cpu);
        let mean = self.mean_virtual_time(cpu);
        let thread = &mut self.threads[id];
        thread.time = mean.map_or(thread.time, |mean| mean as i64);
        thread.deadline = thread.time + SLICE_NS;
        thread.state = ThreadState::Ready;
        thread.cpu = cpu;
        self.cpus[cpu].queue.push(id);
    }

    /// Counts the time of the running thread up to now.
    fn count_time(&mut self, cpu: usize) {
        let cpu = &mut self.cpus[cpu];
        let len = self.now_ns - std::mem::replace(&mut cpu.counted, self.now_ns);
        let Some(id) = cpu.running else { return };
        let thread = &mut self.threads[id];
        thread.time += len as i64;
        thread.remaining_ns -= len as i64;
        thread.life -= len as i64;
        self.used[self.machine.threads[id].tenant] += len;
    }

    /// Ends the stretch of the running thread.
    fn end_stretch(&mut self, cpu: usize) {
        let SimulatedCpu { running, since, .. } = &mut self.cpus[cpu];
        let (running, begin) = (running.take(), *since);
        if let Some(id) = running.filter(|_| self.now_ns > begin) {
            let process = self.threads[id].process;
            let stretch =
                Stretch { begin_ns: begin, end_ns: self.now_ns, thread: id as u32, process };
            self.schedule.stretches[cpu].push(stretch);
        }
    }

    /// Ends the running thread's turn if it is over.
    fn check_turn(&mut self, cpu: usize) {
        self.count_time(cpu);
        if let Some(id) = self.cpus[cpu].running {
            let tenant = self.machine.threads[id].tenant;
            let quota = self.machine.tenants[tenant].quota;
            self.throttled[tenant] |= quota > 0 && self.used[tenant] >= quota;
            let thread = &mut self.threads[id];
            if thread.remaining_ns <= 0 {
                self.end_stretch(cpu);
                self.put_to_sleep(id);
            } else if self.throttled[tenant] {
                thread.state = ThreadState::Parked;
                self.end_stretch(cpu);
            } else if thread.time >= thread.deadline {
                thread.deadline = thread.time + SLICE_NS;
            }
        }
        let Self { cpus, threads, throttled, machine, .. } = self;
        cpus[cpu].queue.retain(|id| {
            let tenant = machine.threads[*id].tenant;
            let parks = throttled[tenant];
            if parks {
                threads[*id].state = ThreadState::Parked;
            }
            !parks
        });
        if self.cpus[cpu].runnable_count() == 0 {
            let socket = cpu / self.machine.cpus * self.machine.cpus;
            for _ in 0..4 {
                let donor = socket + self.random.index_below(self.machine.cpus);
                if let Some(id) = self.take_queued(donor) {
                    self.threads[id].deadline = self.threads[id].time + SLICE_NS;
                    self.threads[id].cpu = cpu;
                    self.cpus[cpu].queue.push(id);
                    break;
                }
            }
        }
        self.choose_thread(cpu);
    }

    /// Takes a thread that is not pinned out of the queue of a CPU.
    fn take_queued(&mut self, cpu: usize) -> Option<usize> {
        let queue = &mut self.cpus[cpu].queue;
        let free = |id: &usize| self.machine.threads[*id].pin.is_none();
        queue.iter().position(free).map(|index| queue.swap_remove(index))
    }

    fn put_to_sleep(&mut self, id: usize) {
        let like = &self.machine.threads[id];
        let random = &mut self.random;
        let mut pause = random.exponential(like.pause) + 1000.0;
        match like.thread_kind {
            ThreadKind::Periodic => {
                let period = like.pause as u64;
                // Each thread has its place in the period.
                let offset = id as u64 % 97 * period / 97;
                let wake_ns = (self.now_ns / period + 1) * period + offset;
                pause = (wake_ns - self.now_ns) as f64 + random.exponential(30_000.0);
            }
            ThreadKind::Short if self.threads[id].life <= 1000 => {
                pause += random.exponential(5e6);
                self.threads[id].life = draw_lifetime(like.life, random);
                self.threads[id].process = self.schedule.tenant_of.len() as u32;
                self.schedule.tenant_of.push(like.tenant);
            }
            _ => {}
        }
        self.threads[id].state = ThreadState::Sleeping;
        if !matches!(like.thread_kind, ThreadKind::Gang(_)) {
            self.push_event(self.now_ns + pause as u64, SimulationEvent::Wake(id));
        }
        if let Some(woken) = like.wakes {
            let pause = 20_000.0 + self.random.exponential(50_000.0);
            self.push_event(self.now_ns + pause as u64, SimulationEvent::Wake(woken));
        }
    }

    /// Lets the thread run whose turn it is.
    fn choose_thread(&mut self, cpu: usize) {
        self.count_time(cpu);
        let Some(mean) = self.mean_virtual_time(cpu) else { return };
        let SimulatedCpu { running, queue, .. } = &self.cpus[cpu];
        let is_due = |id: &usize| self.threads[*id].time as f64 <= mean + 1.0;
        // The running thread comes first, so that it stays if deadlines are equal.
        let runnable = || running.iter().chain(queue).copied();
        let urgent = queue.iter().copied().find(|id| self.machine.threads[*id].urgent);
        let due = runnable().filter(is_due).min_by_key(|id| self.threads[*id].deadline);
        let best = urgent.or(due).or_else(|| runnable().min_by_key(|id| self.threads[*id].time));
        let Some(best) = best.filter(|best| *running != Some(*best)) else {
            return self.plan_look(cpu);
        };
        let previous = *running;
        self.end_stretch(cpu);
        let cpu_state = &mut self.cpus[cpu];
        cpu_state.queue.retain(|id| *id != best);
        cpu_state.queue.extend(previous);
        (cpu_state.running, cpu_state.since) = (Some(best), self.now_ns);
        self.threads[best].cpu = cpu;
        self.plan_look(cpu);
    }

    /// Plans when the running thread's turn is over.
    fn plan_look(&mut self, cpu: usize) {
        let Some(id) = self.cpus[cpu].running else { return };
        let thread = &self.threads[id];
        let mut end = self.now_ns + thread.remaining_ns.clamp(1, POLL_NS as i64) as u64;
        if !self.cpus[cpu].queue.is_empty() {
            let slice = (thread.deadline - thread.time).max(1) as u64;
            end = end.min(self.cpus[cpu].next_tick(self.now_ns + slice));
        }
        if self.machine.tenants[self.machine.threads[id].tenant].quota > 0 {
            end = end.min(self.now_ns + TIMER_NS);
        }
        self.look_at(cpu, end.max(self.now_ns + 1));
    }

    fn look_at(&mut self, cpu: usize, time: u64) {
        self.cpus[cpu].looks += 1;
        self.push_event(time, SimulationEvent::Look(cpu, self.cpus[cpu].looks));
    }

    /// A thread was moved to a CPU: looks at it at its next tick, or now if it is idle.
    fn look_soon(&mut self, cpu: usize) {
        let Some(id) = self.cpus[cpu].running else { return self.look_at(cpu, self.now_ns) };
        self.count_time(cpu);
        let turn_end_ns = self.now_ns + self.threads[id].remaining_ns.max(0) as u64;
        self.look_at(cpu, self.cpus[cpu].next_tick(self.now_ns).min(turn_end_ns));
    }

    fn balance_cpu(&mut self, cpu: usize) {
        let wait_ns = self.random.uniform(10e6, 30e6) as u64;
        self.push_event(self.now_ns + wait_ns, SimulationEvent::Balance(cpu));
        let socket = cpu / self.machine.cpus * self.machine.cpus;
        let sampled = [0; 6].map(|_| socket + self.random.index_below(self.machine.cpus));
        let busy = sampled.into_iter().filter(|candidate| {
            self.cpus[*candidate].queue.len() > self.cpus[cpu].runnable_count()
        });
        let Some(busiest) = busy.max_by_key(|candidate| self.cpus[*candidate].queue.len()) else {
            return;
        };
        let Some(id) = self.take_queued(busiest) else { return };
        if let Some(running) = self.cpus[cpu].running {
            self.threads[id].time = self.threads[running].time;
        }
        self.threads[id].deadline = self.threads[id].time + SLICE_NS;
        self.threads[id].cpu = cpu;
        self.cpus[cpu].queue.push(id);
        self.look_soon(cpu);
    }

    /// A new period of a tenant's quota begins.
    fn refill_quota(&mut self, tenant: usize) {
        let quota = self.machine.tenants[tenant].quota;
        self.push_event(self.now_ns + QUOTA_NS, SimulationEvent::Refill(tenant));
        self.used[tenant] = self.used[tenant].saturating_sub(quota);
        if self.used[tenant] >= quota {
            return;
        }
        self.throttled[tenant] = false;
        self.unpark_tenant(tenant);
    }

    /// Lets the threads of a tenant run again.
    fn unpark_tenant(&mut self, tenant: usize) {
        for (id, thread) in self.machine.threads.iter().enumerate() {
            if thread.tenant == tenant && self.threads[id].state == ThreadState::Parked {
                let cpu = self.threads[id].cpu;
                self.enqueue_thread(id, cpu);
                self.look_soon(cpu);
            }
        }
    }
}
