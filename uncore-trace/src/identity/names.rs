//! Maps threads to owners: a thread's time belongs to its process, under the process's name.
//!
//! The record of a process's main thread has the name. For other threads the name of the main
//! thread is kept: it is first read from procfs, and updated by exec records. If the process exits
//! before it is read, the thread's own name is used.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use super::cgroups::Cgroups;
use crate::bounds;
use crate::drain::{CgroupChange, CgroupRecord, Comm, TaskChange, TaskIdentity, TaskRecord};
use crate::entries::Owner;
use crate::schema::cgroups::is_within;

/// How long the name of a process is kept after its exit, ns.
const KEEP_NS: u64 = 5_000_000_000;

/// Largest number of cgroups that are kept with their ancestor: there may be millions of
/// short-lived ones.
const MOST_ROLLED_UP: usize = 1 << 16;

/// The idle task of a CPU, with the kernel's name for it (`init_idle`, kernel/sched/core.c, Linux
/// 6.18).
pub fn idle_task(cpu: u32) -> TaskIdentity {
    TaskIdentity {
        comm: Comm::from_bytes(format!("swapper/{cpu}").as_bytes()),
        ..TaskIdentity::default()
    }
}

/// The name in `/proc/PID/comm`.
fn comm_of_line(line: &[u8]) -> Comm {
    Comm::from_bytes(line.strip_suffix(b"\n").unwrap_or(line))
}

/// A move of a task to another cgroup.
#[derive(Clone, Copy, Debug)]
struct CgroupMove {
    time_ns: u64,
    tid: u32,
    old_cgroup: u64,
}

/// The exit of a thread.
#[derive(Clone, Copy, Debug)]
struct ThreadExit {
    time_ns: u64,
    tid: u32,
    /// Whether it was the main thread of a process whose name is kept.
    is_leader: bool,
}

/// Names of processes and cgroups.
#[derive(Debug)]
pub struct TaskNames {
    proc: PathBuf,
    /// Names of the main threads of processes whose other threads were seen.
    leaders: HashMap<u32, Comm>,
    /// Threads that exited.
    exited: VecDeque<ThreadExit>,
    moves: VecDeque<CgroupMove>,
    /// The last known cgroup of threads that had a slice longer than a tick.
    last_cgroup: HashMap<u32, u64>,
    /// Paths of cgroups.
    pub cgroups: Cgroups,
    /// Only these cgroups and those below them have owners of their own.
    only_cgroups: Vec<String>,
    is_inside_by_id: HashMap<u64, bool>,
    /// Largest depth of an owner's cgroup.
    depth: Option<usize>,
    /// The ancestor at that depth of each cgroup.
    rolled_up: HashMap<u64, u64>,
}

impl TaskNames {
    /// Starts without names. Names are read from procfs under `root`.
    pub fn new(root: &Path, cgroups: Cgroups, only_cgroups: Vec<String>) -> Self {
        Self {
            proc: root.join("proc"),
            leaders: HashMap::new(),
            exited: VecDeque::new(),
            moves: VecDeque::new(),
            last_cgroup: HashMap::new(),
            cgroups,
            only_cgroups,
            is_inside_by_id: HashMap::new(),
            depth: None,
            rolled_up: HashMap::new(),
        }
    }

    /// Gives the time of deeper cgroups to their ancestor at this depth; 0 is the root.
    #[must_use]
    pub fn with_depth(self, depth: Option<usize>) -> Self {
        Self { depth, ..self }
    }

    /// The owner of a task's time.
    pub fn task_owner(&mut self, task: &TaskIdentity, now_ns: u64) -> Owner {
        if task.tid == 0 {
            return Owner::Idle;
        }
        let Some(cgroup_id) = self.owning_cgroup(task.cgroup_id, now_ns) else {
            return Owner::OtherTasks;
        };
        Owner::Task { pid: task.pid, comm: self.process_name(task).to_table_form(), cgroup_id }
    }

    /// The owner of what a process does whose task is not running: its name is the last that is
    /// known.
    pub fn owner_of_process(&mut self, task: &TaskIdentity, now_ns: u64) -> Owner {
        let Some(cgroup_id) = self.owning_cgroup(task.cgroup_id, now_ns) else {
            return Owner::OtherTasks;
        };
        let comm = self.leaders.get(&task.pid).copied().unwrap_or(task.comm).to_table_form();
        Owner::Task { pid: task.pid, comm, cgroup_id }
    }

    /// The owner of what an unknown task in a cgroup did.
    pub fn owner_in(&mut self, cgroup_id: u64, now_ns: u64) -> Owner {
        let cgroup_id = self.owning_cgroup(cgroup_id, now_ns);
        cgroup_id.map_or(Owner::OtherTasks, |cgroup_id| {
            let (pid, comm) = (0, Comm::default());
            Owner::Task { pid, comm, cgroup_id }
        })
    }

    /// The cgroup that owns the time of `id`; `None` if it has no owner of its own.
    fn owning_cgroup(&mut self, id: u64, now_ns: u64) -> Option<u64> {
        if !self.only_cgroups.is_empty() && !self.is_inside(id, now_ns) {
            return None;
        }
        Some(self.depth.map_or(id, |depth| self.roll_up(id, depth, now_ns)))
    }

    fn roll_up(&mut self, id: u64, depth: usize, now_ns: u64) -> u64 {
        if let Some(&above) = self.rolled_up.get(&id) {
            return above;
        }
        let above = self.cgroups.ancestor_id(id, depth, now_ns);
        // A cgroup without a path may get one later.
        if self.cgroups.known_path(id).is_some() {
            if self.rolled_up.len() >= MOST_ROLLED_UP {
                self.rolled_up.clear();
            }
            self.rolled_up.insert(id, above);
        }
        above
    }

    /// The name of a task's process.
    pub fn process_name(&mut self, task: &TaskIdentity) -> Comm {
        if task.tid == task.pid {
            if let Some(known) = self.leaders.get_mut(&task.pid) {
                *known = task.comm;
            }
            return task.comm;
        }
        if let Some(known) = self.leaders.get(&task.pid) {
            return *known;
        }
        let path = self.proc.join(task.pid.to_string()).join("comm");
        *self.leaders.entry(task.pid).or_insert_with(|| {
            bounds::system_bytes(path).map_or(task.comm, |line| comm_of_line(&line))
        })
    }

    fn is_inside(&mut self, id: u64, now_ns: u64) -> bool {
        if let Some(&inside) = self.is_inside_by_id.get(&id) {
            return inside;
        }
        let Some(path) = self.cgroups.cgroup_path(id, now_ns) else {
            return false;
        };
        let inside = self.only_cgroups.iter().any(|only_cgroup| is_within(path, only_cgroup));
        self.is_inside_by_id.insert(id, inside);
        inside
    }

    /// A thread that came to a CPU and has not left it, from procfs, and whether it still runs;
    /// `None` if it has exited.
    ///
    /// The cgroup is that of the records, if they have one: procfs may already show a move whose
    /// record is still to come, and the time before the move does not belong to the new cgroup.
    pub fn running_task(&self, tid: u32) -> Option<(TaskIdentity, bool)> {
        let (task, runs) =
            self.by_procfs(tid, |path| self.cgroups.id_of_path(&self.cgroups.path_of(path)?))?;
        let known = self.last_cgroup.get(&tid).copied();
        Some((TaskIdentity { cgroup_id: known.unwrap_or(task.cgroup_id), ..task }, runs))
    }

    /// A thread from procfs, and whether it runs or waits for a CPU.
    fn by_procfs(
        &self,
        tid: u32,
        cgroup_of: impl Fn(&Path) -> Option<u64>,
    ) -> Option<(TaskIdentity, bool)> {
        let dir = self.proc.join(tid.to_string());
        // Names may contain any bytes.
        let read_proc_file = |file: &str| bounds::system_bytes(dir.join(file));
        let status = read_proc_file("status").ok()?;
        let status = String::from_utf8_lossy(&status);
        let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key));
        let pid = value("Tgid:")?.trim().parse().ok()?;
        let runs = value("State:")?.trim_start().starts_with('R');
        let comm = comm_of_line(&read_proc_file("comm").ok()?);
        let cgroups = read_proc_file("cgroup").ok()?;
        let path = cgroups.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"0::"));
        let path = path.map(|path| Path::new(OsStr::from_bytes(path)));
        let cgroup_id = path.and_then(cgroup_of).unwrap_or(0);
        Some((TaskIdentity { tid, pid, cgroup_id, comm }, runs))
    }

    /// Divides a slice during which the thread was moved to another cgroup. The time before a move
    /// belongs to the old cgroup, even if the whole slice is before the move: a task that is looked
    /// up later has its current cgroup.
    pub fn split_slice(
        &mut self,
        task: &TaskIdentity,
        begin_ns: u64,
        end_ns: u64,
    ) -> Vec<(TaskIdentity, u64, u64)> {
        let mut slices = Vec::new();
        let mut part_begin_ns = begin_ns;
        for cgroup_move in &self.moves {
            let is_same_thread = cgroup_move.tid == task.tid || cgroup_move.tid == task.pid;
            if is_same_thread && part_begin_ns < cgroup_move.time_ns && part_begin_ns < end_ns {
                let until = cgroup_move.time_ns.min(end_ns);
                slices.push((
                    TaskIdentity { cgroup_id: cgroup_move.old_cgroup, ..*task },
                    part_begin_ns,
                    until,
                ));
                part_begin_ns = until;
            }
        }
        if part_begin_ns < end_ns {
            slices.push((*task, part_begin_ns, end_ns));
        }
        if task.tid != 0 {
            self.last_cgroup.insert(task.tid, task.cgroup_id);
        }
        slices
    }

    /// A thread that was moved, with its name from procfs; the name is empty if it has exited.
    pub fn moved_task(&self, tid: u32, cgroup_id: u64) -> TaskIdentity {
        let known = self.by_procfs(tid, |_| None).map(|(task, _)| task);
        TaskIdentity {
            cgroup_id,
            ..known.unwrap_or(TaskIdentity { tid, pid: tid, ..TaskIdentity::default() })
        }
    }

    /// Updates the names after an exec or exit.
    pub fn task_event(&mut self, event: &TaskRecord) {
        match event.change {
            TaskChange::Exec => {
                if let Some(known) = self.leaders.get_mut(&event.task.pid) {
                    *known = event.task.comm;
                }
            }
            TaskChange::Exit => {
                let TaskIdentity { tid, pid, .. } = event.task;
                self.last_cgroup.remove(&tid);
                // Its last slice ends later, and its record is still to come.
                let is_leader = tid == pid && self.leaders.contains_key(&pid);
                self.exited.push_back(ThreadExit { time_ns: event.time_ns, tid, is_leader });
            }
        }
        let is_due = |exit: &mut ThreadExit| exit.time_ns + KEEP_NS < event.time_ns;
        while let Some(ThreadExit { tid, is_leader, .. }) = self.exited.pop_front_if(is_due) {
            // If another thread has this number by then, its next slice has the cgroup.
            self.last_cgroup.remove(&tid);
            if is_leader {
                self.leaders.remove(&tid);
            }
        }
    }

    /// Updates the names after a change of the cgroup hierarchy.
    pub fn cgroup_event(&mut self, event: &CgroupRecord) {
        match event.change {
            CgroupChange::Created => {
                if let Some(path) = &event.path {
                    self.cgroups.learn_from_kernel(event.cgroup_id, path);
                }
            }
            CgroupChange::Removed => {
                self.cgroups.forget_cgroup(event.cgroup_id, event.time_ns);
                self.is_inside_by_id.remove(&event.cgroup_id);
            }
            CgroupChange::Attached(tid) => {
                if let Some(path) = &event.path {
                    self.cgroups.learn_from_kernel(event.cgroup_id, path);
                }
                let time_ns = event.time_ns;
                if let Some(old_cgroup) = self.last_cgroup.insert(tid, event.cgroup_id) {
                    self.moves.push_back(CgroupMove { time_ns, tid, old_cgroup });
                }
                let is_due = |oldest: &mut CgroupMove| oldest.time_ns + KEEP_NS < time_ns;
                while self.moves.pop_front_if(is_due).is_some() {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_move_counts_from_its_record_on_and_not_from_procfs() {
        let root = tempfile::tempdir().unwrap();
        for cgroup in ["cg/from", "cg/to", "proc/7"] {
            fs::create_dir_all(root.path().join(cgroup)).unwrap();
        }
        let id = |name: &str| fs::metadata(root.path().join("cg").join(name)).unwrap().ino();
        let write = |file: &str, text: &str| {
            fs::write(root.path().join("proc/7").join(file), text).unwrap();
        };
        write("status", "Name:\tx\nState:\tR (running)\nTgid:\t7\n");
        write("comm", "x\n");
        write("cgroup", "0::/from\n");
        let cgroups = Cgroups::new(Some(&root.path().join("cg")), root.path(), Vec::new());
        let mut names = TaskNames::new(root.path(), cgroups, Vec::new());
        let (from, to) = (id("from"), id("to"));
        let running = |names: &TaskNames| {
            let (task, runs) = names.running_task(7).unwrap();
            assert!(runs, "{task:?}");
            task
        };
        let task = running(&names);
        assert_eq!((task.pid, task.cgroup_id), (7, from));
        names.split_slice(&task, 0, 10);
        write("cgroup", "0::/to\n");
        let task = running(&names);
        assert_eq!(task.cgroup_id, from, "the record of the move is still to come");
        names.split_slice(&task, 10, 20);
        let change = CgroupChange::Attached(7);
        names.cgroup_event(&CgroupRecord { time_ns: 25, cgroup_id: to, change, path: None });
        let parts = names.split_slice(&running(&names), 20, 30);
        let parts: Vec<_> = parts.iter().map(|(task, a, b)| (task.cgroup_id, *a, *b)).collect();
        assert_eq!(parts, [(from, 20, 25), (to, 25, 30)]);
    }

    #[test]
    fn a_running_task_may_be_called_anything() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/7");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("status"), b"Name:\t\xff\xfe\nState:\tS (sleeping)\nTgid:\t7\n")
            .unwrap();
        fs::write(dir.join("comm"), b"\xff\xfe\n").unwrap();
        fs::write(dir.join("cgroup"), b"1:name=\xff:/\n0::/\xff\n").unwrap();
        let cgroup = root.path().join("cg").join(OsStr::from_bytes(b"\xff"));
        fs::create_dir_all(&cgroup).unwrap();
        let cgroups = Cgroups::new(Some(&root.path().join("cg")), root.path(), Vec::new());
        let found = TaskNames::new(root.path(), cgroups, Vec::new()).running_task(7);
        let (comm, cgroup_id) =
            (Comm::from_bytes(b"\xff\xfe"), fs::metadata(cgroup).unwrap().ino());
        assert_eq!(found, Some((TaskIdentity { tid: 7, pid: 7, cgroup_id, comm }, false)));
    }

    #[test]
    fn a_task_looked_up_after_its_move_was_where_it_was() {
        let mut names = TaskNames::new(
            Path::new("/nonexistent"),
            Cgroups::new(None, Path::new("/nonexistent"), Vec::new()),
            Vec::new(),
        );
        let task =
            |cgroup_id| TaskIdentity { tid: 7, pid: 7, cgroup_id, ..TaskIdentity::default() };
        names.split_slice(&task(1), 0, 10);
        let change = CgroupChange::Attached(7);
        names.cgroup_event(&CgroupRecord { time_ns: 25, cgroup_id: 2, change, path: None });
        let mut parts = |begin, end| -> Vec<(u64, u64, u64)> {
            let parts = names.split_slice(&task(2), begin, end);
            parts.into_iter().map(|(task, from, to)| (task.cgroup_id, from, to)).collect()
        };
        assert_eq!(parts(10, 20), [(1, 10, 20)]);
        assert_eq!(parts(20, 30), [(1, 20, 25), (2, 25, 30)]);
        assert_eq!(parts(30, 40), [(2, 30, 40)]);
    }

    #[test]
    fn the_cgroup_of_a_thread_does_not_outlive_it_for_long() {
        let nowhere = Path::new("/nonexistent");
        let mut names =
            TaskNames::new(nowhere, Cgroups::new(None, nowhere, Vec::new()), Vec::new());
        let event = |tid, time| {
            let task = TaskIdentity { tid, pid: 7, cgroup_id: 3, ..TaskIdentity::default() };
            TaskRecord { time_ns: time, task, change: TaskChange::Exit }
        };
        for tid in [8, 9] {
            let exit = event(tid, 10);
            names.task_event(&exit);
            // The last slice ends after the record of the exit.
            names.split_slice(&exit.task, 5, 11);
        }
        assert_eq!(names.last_cgroup.len(), 2);
        names.task_event(&event(10, 11 + KEEP_NS));
        assert!(names.last_cgroup.is_empty() && names.exited.len() == 1, "{names:?}");
    }
}
