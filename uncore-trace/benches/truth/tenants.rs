//! Who runs on a drawn machine: tenants with their threads, and the kernel's threads.
//!
//! Each socket is the home of as many tenants. They want CPU time in proportion to log-normal
//! weights (sigma 1), together [`LOAD`] of the socket. A tenant moves bytes at a log-normal rate
//! (median 0.3 bytes/ns, sigma 1.6); its threads differ by 30 %. A part of its bytes goes to the
//! memory of the other socket: 0 to 8 %, and of one tenant in five 10 to 60 %. Tenants that pause
//! as usual are of these kinds ("a to b": uniform; "a .. b": uniform in the logarithm):
//!
//! | kind | part | threads |
//! |---|---|---|
//! | hpc | 10 % | one for each wanted CPU, pinned; never sleep; one process or one each |
//! | serve, pod | 30 %, 10 % | busy for 15 to 60 %, 50 .. 500 us at a time (log-normal, sigma 0.6); one process or more; three in ten wait for another such tenant; a pod has a periodic sidecar (0.2 .. 2 ms each 10 .. 100 ms) |
//! | batch | 20 % | busy for 40 to 95 %, 3 .. 100 ms at a time (exponential); one process or one each |
//! | periodic | 10 % | run once in 4 .. 60 ms (15 %); one process |
//! | short | 8 % | processes that live for 20 .. 300 ms (log-normal, sigma 0.8), 1 .. 20 ms at a time |
//! | gang | 12 % | busy for 20 to 60 %, 0.5 .. 15 ms, all woken together |
//!
//! Three in ten have threads that also run on the other socket. One in five of the larger serve,
//! batch and gang tenants has a quota of 50 to 90 % of what it wants. Tenants that never pause have
//! one process whose threads never sleep, each pinned to a CPU of its own if there are enough of
//! them.
//!
//! The kernel, in the root cgroup, has a worker on each CPU (15 us each 20 ms), one thread for each
//! socket (10 us each 4 ms), and network softirqs on eight CPUs of a socket (30 us each 0.5 .. 4
//! ms).

use super::random::Random;
use super::{DrawnCase, Pauses, SOCKETS, ground};

/// Part of the CPUs' time that tenants want.
const LOAD: f64 = 0.6;
/// Median and deviation of the logarithm of rates; bytes/ns.
const RATE: (f64, f64) = (0.3, 1.6);
/// Period of quotas, ns: `cpu.max`.
pub(crate) const QUOTA_NS: u64 = 100_000_000;
const US: f64 = 1e3;
const MS: f64 = 1e6;

/// How a thread runs and sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    Spin,
    Serve,
    Batch,
    Periodic,
    Short,
    Gang(usize),
}

/// A sort of tenant: see the table above.
#[derive(Clone, Copy)]
struct TenantSort {
    /// How many of the tenants are of it.
    share: f64,
    thread_kind: ThreadKind,
    /// Part of the time for which a thread runs, and for how long at a time, ms; or the period.
    busy: (f64, f64),
    run: (f64, f64),
    /// How many of the tenants have a process for each thread.
    process_per_thread: f64,
    may_have_quota: bool,
    has_sidecar: bool,
}

const BATCH: TenantSort = TenantSort {
    share: 0.20,
    thread_kind: ThreadKind::Batch,
    busy: (0.4, 0.95),
    run: (3.0, 100.0),
    process_per_thread: 0.5,
    may_have_quota: true,
    has_sidecar: false,
};
const OTHER: TenantSort = TenantSort { may_have_quota: false, ..BATCH };
const SERVE: TenantSort = TenantSort {
    share: 0.30,
    thread_kind: ThreadKind::Serve,
    busy: (0.15, 0.6),
    run: (0.05, 0.5),
    process_per_thread: 1.0,
    ..BATCH
};
const SORTS: [TenantSort; 7] = [
    TenantSort { share: 0.10, thread_kind: ThreadKind::Spin, busy: (1.0, 1.0), ..OTHER },
    SERVE,
    BATCH,
    TenantSort {
        share: 0.10,
        thread_kind: ThreadKind::Periodic,
        busy: (0.5, 0.5),
        run: (4.0, 60.0),
        process_per_thread: 0.0,
        ..OTHER
    },
    TenantSort {
        share: 0.08,
        thread_kind: ThreadKind::Short,
        busy: (0.8, 0.8),
        run: (1.0, 20.0),
        process_per_thread: 1.0,
        ..OTHER
    },
    TenantSort {
        share: 0.12,
        thread_kind: ThreadKind::Gang(0),
        busy: (0.2, 0.6),
        run: (0.5, 15.0),
        process_per_thread: 0.0,
        ..BATCH
    },
    TenantSort { share: 0.10, may_have_quota: false, has_sidecar: true, ..SERVE },
];

#[derive(Clone, Debug)]
pub(crate) struct DrawnThread {
    pub(crate) tenant: usize,
    pub(crate) process: usize,
    pub(crate) thread_kind: ThreadKind,
    pub(crate) socket: usize,
    pub(crate) pin: Option<usize>,
    /// Whether it may wake on the other socket.
    pub(crate) spans: bool,
    /// Whether it runs as soon as it wakes.
    pub(crate) urgent: bool,
    pub(crate) is_softirq: bool,
    /// Mean time that it runs and sleeps (or the period), and that its process lives, ns.
    pub(crate) run: f64,
    pub(crate) pause: f64,
    pub(crate) life: f64,
    /// The thread that it wakes when it sleeps.
    pub(crate) wakes: Option<usize>,
    /// Factor of its rate.
    pub(crate) factor: f64,
}

#[derive(Debug)]
pub(crate) struct DrawnTenant {
    /// Bytes/ns.
    pub(crate) rate: f64,
    /// Part of its bytes in the memory of the other socket.
    pub(crate) remote: f64,
    /// CPU time in [`QUOTA_NS`], ns; 0: no quota.
    pub(crate) quota: u64,
}

/// A machine before it runs. The last tenant is the kernel.
#[derive(Debug, Default)]
pub(crate) struct DrawnMachine {
    /// CPUs of a socket.
    pub(crate) cpus: usize,
    pub(crate) tenants: Vec<DrawnTenant>,
    pub(crate) threads: Vec<DrawnThread>,
    /// Processes at the begin.
    pub(crate) processes: usize,
    /// Period, ns, and its relative spread.
    pub(crate) gangs: Vec<(f64, f64)>,
}

impl DrawnMachine {
    pub(crate) fn draw(case: &DrawnCase, random: &mut Random) -> Self {
        let mut machine = Self { cpus: case.cpus, ..Self::default() };
        for socket in 0..SOCKETS {
            let weights: Vec<f64> =
                (0..case.tenants).map(|_| random.log_normal(0.0, 1.0)).collect();
            match case.pauses {
                Pauses::Never => machine.add_busy_tenants(case, socket, &weights, random),
                Pauses::Usual => machine.add_pausing_tenants(socket, &weights, random),
            }
        }
        machine.add_kernel(random);
        ground::shape_machine(case, &mut machine);
        machine
    }

    /// CPUs of all sockets.
    pub(crate) fn all_cpus(&self) -> usize {
        self.cpus * SOCKETS
    }

    fn new_process(&mut self) -> usize {
        self.processes += 1;
        self.processes - 1
    }

    fn new_tenant(&mut self, remote: f64, quota: f64, random: &mut Random) -> usize {
        let rate = random.log_normal(RATE.0.ln(), RATE.1);
        self.tenants.push(DrawnTenant { rate, remote, quota: quota as u64 });
        self.tenants.len() - 1
    }

    /// Adds a thread like `like`; returns its number.
    fn add_thread(&mut self, like: &DrawnThread, process: usize, random: &mut Random) -> usize {
        let pause = like.pause.max(US);
        self.threads.push(DrawnThread {
            process,
            pause,
            factor: random.mean_one_factor(0.3),
            ..like.clone()
        });
        self.threads.len() - 1
    }

    fn add_pausing_tenants(&mut self, socket: usize, weights: &[f64], random: &mut Random) {
        let sum: f64 = weights.iter().sum();
        let mut free = random.permutation(self.cpus);
        let mut served: Vec<Vec<usize>> = Vec::new();
        for weight in weights {
            let want = weight / sum * self.cpus as f64 * LOAD;
            let mut chosen_sort = &SORTS[random.by_weight(&SORTS.map(|candidate| candidate.share))];
            let room = want + 0.25 * self.cpus as f64;
            if chosen_sort.thread_kind == ThreadKind::Spin
                && (want < 0.6 || (free.len() as f64) < room)
            {
                chosen_sort = &BATCH;
            }
            let spans = chosen_sort.thread_kind != ThreadKind::Spin && random.draw_bool(0.3);
            let remote = if random.draw_bool(0.2) { (0.1, 0.6) } else { (0.0, 0.08) };
            let remote = random.uniform(remote.0, remote.1);
            let limited = chosen_sort.may_have_quota && want > 0.3 && random.draw_bool(0.2);
            let quota = if limited { want * random.uniform(0.5, 0.9) } else { 0.0 };
            let tenant = self.new_tenant(remote, quota * QUOTA_NS as f64, random);
            let count =
                (want / random.uniform(chosen_sort.busy.0, chosen_sort.busy.1)).ceil().max(1.0);
            let mut like = DrawnThread {
                spans,
                ..DrawnThread::for_tenant(tenant, chosen_sort.thread_kind, socket)
            };
            like.run = random.log_uniform(chosen_sort.run.0, chosen_sort.run.1) * MS;
            like.pause = like.run * (count / want - 1.0);
            match chosen_sort.thread_kind {
                ThreadKind::Periodic => {
                    (like.run, like.pause) = (like.run * want / count, like.run);
                }
                ThreadKind::Short => like.life = random.log_uniform(20.0, 300.0) * MS,
                ThreadKind::Gang(_) => {
                    like.thread_kind = ThreadKind::Gang(self.gangs.len());
                    self.gangs.push((like.run * count / want, random.unit_interval()));
                }
                _ => {}
            }
            let count = if chosen_sort.thread_kind == ThreadKind::Spin {
                want.round().max(1.0)
            } else {
                count
            };
            let mut processes = vec![self.new_process()];
            let process_limit =
                if random.draw_bool(chosen_sort.process_per_thread) { count as usize } else { 1 };
            while processes.len() < process_limit
                && (chosen_sort.thread_kind != ThreadKind::Serve || random.draw_bool(0.5))
            {
                processes.push(self.new_process());
            }
            let mut mine = Vec::new();
            for index in 0..count as usize {
                if chosen_sort.thread_kind == ThreadKind::Spin {
                    like.pin = free.pop().map(|cpu| socket * self.cpus + cpu);
                }
                mine.push(self.add_thread(&like, processes[index % processes.len()], random));
            }
            if chosen_sort.has_sidecar {
                let run = random.log_uniform(0.2, 2.0) * MS;
                let pause = random.log_uniform(10.0, 100.0) * MS;
                let process = self.new_process();
                self.add_thread(
                    &DrawnThread { thread_kind: ThreadKind::Periodic, run, pause, ..like },
                    process,
                    random,
                );
            }
            if chosen_sort.thread_kind == ThreadKind::Serve {
                if !served.is_empty() && random.draw_bool(0.3) {
                    // Its requests come from another tenant's.
                    for (waker, woken) in served[random.index_below(served.len())].iter().zip(&mine)
                    {
                        self.threads[*waker].wakes = Some(*woken);
                        self.threads[*woken].pause *= 3.0;
                    }
                }
                served.push(mine);
            }
        }
    }

    fn add_busy_tenants(
        &mut self,
        case: &DrawnCase,
        socket: usize,
        weights: &[f64],
        random: &mut Random,
    ) {
        let mut threads = vec![1; weights.len()];
        for _ in weights.len()..self.cpus {
            threads[random.by_weight(weights)] += 1;
        }
        let mut free_cpus = random.permutation(self.cpus).into_iter();
        for count in threads {
            let remote = random.uniform(0.0, 0.08);
            let quota = case.quota.unwrap_or(0.0) * f64::from(count) * QUOTA_NS as f64;
            let tenant = self.new_tenant(remote, quota, random);
            let process = self.new_process();
            let mut like = DrawnThread::for_tenant(tenant, ThreadKind::Spin, socket);
            for _ in 0..count {
                let pinned_cpu = free_cpus.next().filter(|_| weights.len() <= self.cpus);
                like.pin = pinned_cpu.map(|cpu| socket * self.cpus + cpu);
                self.add_thread(&like, process, random);
            }
        }
    }

    fn add_kernel(&mut self, random: &mut Random) {
        self.tenants.push(DrawnTenant { rate: RATE.0, remote: 0.05, quota: 0 });
        let tenant = self.tenants.len() - 1;
        let like = |socket, run, pause| DrawnThread {
            urgent: true,
            run,
            pause,
            ..DrawnThread::for_tenant(tenant, ThreadKind::Serve, socket)
        };
        for cpu in 0..self.all_cpus() {
            let process = self.new_process();
            let worker = like(cpu / self.cpus, 15.0 * US, 20.0 * MS);
            self.add_thread(&DrawnThread { pin: Some(cpu), ..worker }, process, random);
        }
        for socket in 0..SOCKETS {
            let process = self.new_process();
            self.add_thread(&like(socket, 10.0 * US, 4.0 * MS), process, random);
        }
        let process = self.new_process();
        for cpu in (0..self.all_cpus()).step_by((self.cpus / 8).max(1)) {
            let pause = random.log_uniform(0.5, 4.0) * MS;
            let softirq = like(cpu / self.cpus, 30.0 * US, pause);
            self.add_thread(
                &DrawnThread { pin: Some(cpu), is_softirq: true, ..softirq },
                process,
                random,
            );
        }
    }
}

impl DrawnThread {
    const fn for_tenant(tenant: usize, thread_kind: ThreadKind, socket: usize) -> Self {
        Self {
            tenant,
            process: 0,
            thread_kind,
            socket,
            pin: None,
            spans: false,
            urgent: false,
            is_softirq: false,
            run: 0.0,
            pause: 0.0,
            life: 0.0,
            wakes: None,
            factor: 1.0,
        }
    }
}
