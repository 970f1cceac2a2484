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
use super::tenants::{Kind, Machine, QUOTA_NS};

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
    pub(crate) begin: u64,
    pub(crate) end: u64,
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
enum Event {
    Wake(usize),
    Gang(usize),
    /// A CPU's task may have ended; void if the number is not that of the last such event.
    Look(usize, u64),
    Balance(usize),
    Refill(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Sleeping,
    Ready,
    /// Its tenant has no quota left.
    Parked,
}

#[derive(Debug)]
struct Thread {
    state: State,
    process: u32,
    /// Where it last ran or waits.
    cpu: usize,
    /// Virtual time, and when its slice ends in it.
    time: i64,
    deadline: i64,
    /// How long it will still run, and its process live, ns.
    left: i64,
    life: i64,
}

#[derive(Debug, Default)]
struct Cpu {
    /// When its timer ticks, within [`TIMER_NS`].
    phase: u64,
    running: Option<usize>,
    since: u64,
    /// Up to when the time of the running thread is counted.
    counted: u64,
    queue: Vec<usize>,
    looks: u64,
}

impl Cpu {
    fn next_tick(&self, now: u64) -> u64 {
        now.saturating_sub(self.phase).div_ceil(TIMER_NS) * TIMER_NS + self.phase
    }

    fn load(&self) -> usize {
        self.queue.len() + usize::from(self.running.is_some())
    }
}

struct Simulator<'a> {
    machine: &'a Machine,
    random: Random,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    pushed: u64,
    cpus: Vec<Cpu>,
    threads: Vec<Thread>,
    used: Vec<u64>,
    throttled: Vec<bool>,
    made: Schedule,
}

/// Runs a machine for `len_ns`.
pub(crate) fn simulate(machine: &Machine, len_ns: u64, mut random: Random) -> Schedule {
    let cpu = |random: &mut Random| Cpu {
        phase: random.below(TIMER_NS as usize) as u64,
        ..Cpu::default()
    };
    let cpus: Vec<Cpu> = (0..machine.all_cpus()).map(|_| cpu(&mut random)).collect();
    let mut tenant_of = vec![0; machine.processes];
    let mut threads = Vec::new();
    for thread in &machine.threads {
        tenant_of[thread.process] = thread.tenant;
        let home = thread.socket * machine.cpus + random.below(machine.cpus);
        threads.push(Thread {
            state: State::Sleeping,
            process: thread.process as u32,
            cpu: thread.pin.unwrap_or(home),
            time: 0,
            deadline: 0,
            left: 0,
            life: lifetime(thread.life, &mut random),
        });
    }
    let made = Schedule { stretches: vec![Vec::new(); cpus.len()], tenant_of };
    let tenants = machine.tenants.len();
    let mut simulator = Simulator {
        machine,
        random,
        now: 0,
        events: BinaryHeap::new(),
        pushed: 0,
        cpus,
        threads,
        used: vec![0; tenants],
        throttled: vec![false; tenants],
        made,
    };
    simulator.begin();
    while let Some(Reverse((now, _, event))) = simulator.events.pop() {
        if now >= len_ns {
            break;
        }
        simulator.now = now;
        simulator.happens(event);
    }
    simulator.now = len_ns;
    (0..machine.all_cpus()).for_each(|cpu| simulator.leave(cpu));
    simulator.made
}

fn lifetime(mean: f64, random: &mut Random) -> i64 {
    (mean * random.log_normal(-0.3, 0.8)) as i64 + 1_000_000
}

impl Simulator<'_> {
    fn at(&mut self, time: u64, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((time, self.pushed, event)));
    }

    /// Pushes an event after a random part of `most` ns.
    fn soon(&mut self, most: f64, event: Event) {
        let time = self.random.uniform(0.0, most) as u64;
        self.at(time, event);
    }

    fn begin(&mut self) {
        let machine = self.machine;
        for (id, thread) in machine.threads.iter().enumerate() {
            match thread.kind {
                Kind::Gang(_) => {}
                Kind::Spin => self.soon(20e6, Event::Wake(id)),
                _ => self.soon(thread.run + thread.pause, Event::Wake(id)),
            }
        }
        (0..self.cpus.len()).for_each(|cpu| self.soon(20e6, Event::Balance(cpu)));
        for (id, _) in machine.tenants.iter().enumerate().filter(|(_, tenant)| tenant.quota > 0) {
            self.soon(QUOTA_NS as f64, Event::Refill(id));
        }
        for (id, (period, _)) in machine.gangs.iter().enumerate() {
            self.soon(*period, Event::Gang(id));
        }
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Wake(id) => self.wake(id),
            Event::Gang(gang) => {
                let (period, spread) = self.machine.gangs[gang];
                let next = period * (1.0 + spread * self.random.uniform(-0.5, 0.5));
                self.at(self.now + next as u64, event);
                for (id, thread) in self.machine.threads.iter().enumerate() {
                    if thread.kind == Kind::Gang(gang) {
                        self.wake(id);
                    }
                }
            }
            Event::Look(cpu, number) if number == self.cpus[cpu].looks => self.look(cpu),
            Event::Look(..) => {}
            Event::Balance(cpu) => self.balance(cpu),
            Event::Refill(tenant) => self.refill(tenant),
        }
    }

    fn wake(&mut self, id: usize) {
        if self.threads[id].state != State::Sleeping {
            return;
        }
        let thread = &self.machine.threads[id];
        let random = &mut self.random;
        let left = match thread.kind {
            Kind::Spin => FOREVER,
            Kind::Serve => (thread.run * random.log_normal(-0.18, 0.6)) as i64 + 2000,
            Kind::Batch => random.exponential(thread.run) as i64 + 5000,
            Kind::Short => {
                (random.exponential(thread.run) as i64 + 5000).min(self.threads[id].life.max(1000))
            }
            Kind::Periodic => (thread.run * random.normal(1.0, 0.15).max(0.1)) as i64,
            Kind::Gang(_) => (thread.run * random.uniform(0.5, 1.5)) as i64,
        };
        self.threads[id].left = left;
        if self.throttled[thread.tenant] {
            self.threads[id].state = State::Parked;
            return;
        }
        let cpu = self.place(id);
        self.join(id, cpu);
        let running = self.cpus[cpu].running.map(|running| self.machine.threads[running].urgent);
        match running {
            Some(urgent) if urgent || !thread.urgent => self.arm(cpu),
            _ => self.choose(cpu),
        }
    }

    /// The CPU on which a thread wakes.
    fn place(&mut self, id: usize) -> usize {
        let thread = &self.machine.threads[id];
        let last = self.threads[id].cpu;
        if thread.pin.is_some() || self.cpus[last].running.is_none() {
            return last;
        }
        let per_socket = self.machine.cpus;
        let moves = thread.spans && self.random.chance(0.1);
        let socket = if moves { self.random.below(SOCKETS) } else { last / per_socket };
        let start = self.random.below(per_socket);
        let of_socket = |at: usize| socket * per_socket + at % per_socket;
        let mut searched = (0..SEARCHED.min(per_socket)).map(|step| of_socket(start + step));
        if let Some(idle) = searched.find(|cpu| self.cpus[*cpu].running.is_none()) {
            return idle;
        }
        let others = [0; 2].map(|_| of_socket(self.random.below(per_socket)));
        let all = [last, others[0], others[1]];
        all.into_iter().min_by_key(|cpu| self.cpus[*cpu].queue.len()).unwrap_or(last)
    }

    /// Mean virtual time of the threads of a CPU.
    fn mean(&self, cpu: usize) -> Option<f64> {
        let all = self.cpus[cpu].running.iter().chain(&self.cpus[cpu].queue);
        let sum: f64 = all.map(|id| self.threads[*id].time as f64).sum();
        (self.cpus[cpu].load() > 0).then(|| sum / self.cpus[cpu].load() as f64)
    }

    /// Puts a thread into the queue of a CPU, at the mean of its virtual time.
    fn join(&mut self, id: usize, cpu: usize) {
        self.count(cpu);
        let mean = self.mean(cpu);
        let thread = &mut self.threads[id];
        thread.time = mean.map_or(thread.time, |mean| mean as i64);
        thread.deadline = thread.time + SLICE_NS;
        thread.state = State::Ready;
        thread.cpu = cpu;
        self.cpus[cpu].queue.push(id);
    }

    /// Counts the time of the running thread up to now.
    fn count(&mut self, cpu: usize) {
        let cpu = &mut self.cpus[cpu];
        let len = self.now - std::mem::replace(&mut cpu.counted, self.now);
        let Some(id) = cpu.running else { return };
        let thread = &mut self.threads[id];
        thread.time += len as i64;
        thread.left -= len as i64;
        thread.life -= len as i64;
        self.used[self.machine.threads[id].tenant] += len;
    }

    /// Ends the stretch of the running thread.
    fn leave(&mut self, cpu: usize) {
        let Cpu { running, since, .. } = &mut self.cpus[cpu];
        let (running, begin) = (running.take(), *since);
        if let Some(id) = running.filter(|_| self.now > begin) {
            let process = self.threads[id].process;
            let stretch = Stretch { begin, end: self.now, thread: id as u32, process };
            self.made.stretches[cpu].push(stretch);
        }
    }

    /// Ends the running thread's turn if it is over.
    fn look(&mut self, cpu: usize) {
        self.count(cpu);
        if let Some(id) = self.cpus[cpu].running {
            let tenant = self.machine.threads[id].tenant;
            let quota = self.machine.tenants[tenant].quota;
            self.throttled[tenant] |= quota > 0 && self.used[tenant] >= quota;
            let thread = &mut self.threads[id];
            if thread.left <= 0 {
                self.leave(cpu);
                self.sleep(id);
            } else if self.throttled[tenant] {
                thread.state = State::Parked;
                self.leave(cpu);
            } else if thread.time >= thread.deadline {
                thread.deadline = thread.time + SLICE_NS;
            }
        }
        let Self { cpus, threads, throttled, machine, .. } = self;
        cpus[cpu].queue.retain(|id| {
            let tenant = machine.threads[*id].tenant;
            let parks = throttled[tenant];
            if parks {
                threads[*id].state = State::Parked;
            }
            !parks
        });
        if self.cpus[cpu].load() == 0 {
            let socket = cpu / self.machine.cpus * self.machine.cpus;
            for _ in 0..4 {
                let other = socket + self.random.below(self.machine.cpus);
                if let Some(id) = self.take_from(other) {
                    self.threads[id].deadline = self.threads[id].time + SLICE_NS;
                    self.threads[id].cpu = cpu;
                    self.cpus[cpu].queue.push(id);
                    break;
                }
            }
        }
        self.choose(cpu);
    }

    /// Takes a thread that is not pinned out of the queue of a CPU.
    fn take_from(&mut self, cpu: usize) -> Option<usize> {
        let queue = &mut self.cpus[cpu].queue;
        let free = |id: &usize| self.machine.threads[*id].pin.is_none();
        queue.iter().position(free).map(|place| queue.swap_remove(place))
    }

    fn sleep(&mut self, id: usize) {
        let like = &self.machine.threads[id];
        let random = &mut self.random;
        let mut pause = random.exponential(like.pause) + 1000.0;
        match like.kind {
            Kind::Periodic => {
                let period = like.pause as u64;
                // Each thread has its place in the period.
                let place = id as u64 % 97 * period / 97;
                let next = (self.now / period + 1) * period + place;
                pause = (next - self.now) as f64 + random.exponential(30_000.0);
            }
            Kind::Short if self.threads[id].life <= 1000 => {
                pause += random.exponential(5e6);
                self.threads[id].life = lifetime(like.life, random);
                self.threads[id].process = self.made.tenant_of.len() as u32;
                self.made.tenant_of.push(like.tenant);
            }
            _ => {}
        }
        self.threads[id].state = State::Sleeping;
        if !matches!(like.kind, Kind::Gang(_)) {
            self.at(self.now + pause as u64, Event::Wake(id));
        }
        if let Some(other) = like.wakes {
            let pause = 20_000.0 + self.random.exponential(50_000.0);
            self.at(self.now + pause as u64, Event::Wake(other));
        }
    }

    /// Lets the thread run whose turn it is.
    fn choose(&mut self, cpu: usize) {
        self.count(cpu);
        let Some(mean) = self.mean(cpu) else { return };
        let Cpu { running, queue, .. } = &self.cpus[cpu];
        let is_due = |id: &usize| self.threads[*id].time as f64 <= mean + 1.0;
        // The running thread comes first, so that it stays if deadlines are equal.
        let all = || running.iter().chain(queue).copied();
        let urgent = queue.iter().copied().find(|id| self.machine.threads[*id].urgent);
        let due = all().filter(is_due).min_by_key(|id| self.threads[*id].deadline);
        let best = urgent.or(due).or_else(|| all().min_by_key(|id| self.threads[*id].time));
        let Some(best) = best.filter(|best| *running != Some(*best)) else { return self.arm(cpu) };
        let before = *running;
        self.leave(cpu);
        let its = &mut self.cpus[cpu];
        its.queue.retain(|id| *id != best);
        its.queue.extend(before);
        (its.running, its.since) = (Some(best), self.now);
        self.threads[best].cpu = cpu;
        self.arm(cpu);
    }

    /// Plans when the running thread's turn is over.
    fn arm(&mut self, cpu: usize) {
        let Some(id) = self.cpus[cpu].running else { return };
        let thread = &self.threads[id];
        let mut end = self.now + thread.left.clamp(1, POLL_NS as i64) as u64;
        if !self.cpus[cpu].queue.is_empty() {
            let slice = (thread.deadline - thread.time).max(1) as u64;
            end = end.min(self.cpus[cpu].next_tick(self.now + slice));
        }
        if self.machine.tenants[self.machine.threads[id].tenant].quota > 0 {
            end = end.min(self.now + TIMER_NS);
        }
        self.look_at(cpu, end.max(self.now + 1));
    }

    fn look_at(&mut self, cpu: usize, time: u64) {
        self.cpus[cpu].looks += 1;
        self.at(time, Event::Look(cpu, self.cpus[cpu].looks));
    }

    /// A thread was moved to a CPU: looks at it at its next tick, or now if it is idle.
    fn moved(&mut self, cpu: usize) {
        let Some(id) = self.cpus[cpu].running else { return self.look_at(cpu, self.now) };
        self.count(cpu);
        let left = self.now + self.threads[id].left.max(0) as u64;
        self.look_at(cpu, self.cpus[cpu].next_tick(self.now).min(left));
    }

    fn balance(&mut self, cpu: usize) {
        let next = self.random.uniform(10e6, 30e6) as u64;
        self.at(self.now + next, Event::Balance(cpu));
        let socket = cpu / self.machine.cpus * self.machine.cpus;
        let others = [0; 6].map(|_| socket + self.random.below(self.machine.cpus));
        let busy =
            others.into_iter().filter(|at| self.cpus[*at].queue.len() > self.cpus[cpu].load());
        let Some(busiest) = busy.max_by_key(|at| self.cpus[*at].queue.len()) else { return };
        let Some(id) = self.take_from(busiest) else { return };
        if let Some(running) = self.cpus[cpu].running {
            self.threads[id].time = self.threads[running].time;
        }
        self.threads[id].deadline = self.threads[id].time + SLICE_NS;
        self.threads[id].cpu = cpu;
        self.cpus[cpu].queue.push(id);
        self.moved(cpu);
    }

    /// A new period of a tenant's quota begins.
    fn refill(&mut self, tenant: usize) {
        let quota = self.machine.tenants[tenant].quota;
        self.at(self.now + QUOTA_NS, Event::Refill(tenant));
        self.used[tenant] = self.used[tenant].saturating_sub(quota);
        if self.used[tenant] >= quota {
            return;
        }
        self.throttled[tenant] = false;
        self.unpark(tenant);
    }

    /// Lets the threads of a tenant run again.
    fn unpark(&mut self, tenant: usize) {
        for (id, thread) in self.machine.threads.iter().enumerate() {
            if thread.tenant == tenant && self.threads[id].state == State::Parked {
                let cpu = self.threads[id].cpu;
                self.join(id, cpu);
                self.moved(cpu);
            }
        }
    }
}
