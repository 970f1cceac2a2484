// Small programs at sched_switch for `cargo xtask bench hook`: ways to keep what ran between two ticks.
//
// `slots`, `storage` and `pages` do the same work: the time since the last switch of this CPU goes to the
// task that leaves, and who it is, by thread, process, cgroup and name, is said once in a tick of 1 ms.
// None counts interrupts or reads a counter. The declarations are those of the kernel, so that no header
// is needed.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define UINT(name, value) int (*name)[value]
#define TYPE(name, value) value *name
#define AT_SWITCH(name) SEC("tp_btf/sched_switch") int name(__attribute__((unused)) u64 *ctx)

// Numbers of include/uapi/linux/bpf.h.
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_get_current_comm)(void *buffer, u32 size) = (void *)16;
static u64 (*bpf_get_current_cgroup_id)(void) = (void *)80;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;
static void *(*bpf_task_storage_get)(void *map, void *task, void *value, u64 flags) = (void *)156;
enum { ARRAY = 2, RINGBUF = 27, TASK_STORAGE = 29, NO_PREALLOC = 1, CREATE = 1, NO_WAKEUP = 1 };
enum { MAX_CPUS = 1024, TICK_NS = 1000000, SLOTS = 16, SLICES = 255, KNOWN = 64 };

// The members that are read, at the running kernel's offsets (CO-RE).
struct rq {
	u64 clock;
} __attribute__((preserve_access_index));
struct cfs_rq {
	struct rq *rq;
} __attribute__((preserve_access_index));
struct sched_entity {
	struct cfs_rq *cfs_rq;
} __attribute__((preserve_access_index));
struct task_struct {
	int pid;
	struct sched_entity se;
} __attribute__((preserve_access_index));

char LICENSE[] SEC("license") = "Dual MIT/GPL";

struct who {
	u64 pids, cgroup;
	char comm[16];
};
struct slot {
	struct who who;
	u64 wall;
	u32 slices, tid;
	u64 unused;
};
struct slots {
	u64 end, boundary, len;
	struct slot slots[SLOTS];
};
struct slice {
	u64 tid, end;
};
struct page {
	u64 boundary, len;
	struct slice slices[SLICES];
	u64 known[KNOWN];
};
struct own {
	struct who who;
	u64 boundary, wall, slices;
};

struct {
	UINT(type, RINGBUF);
	UINT(max_entries, 1 << 24);
} RECORDS SEC(".maps");
struct {
	UINT(type, ARRAY);
	UINT(max_entries, MAX_CPUS);
	TYPE(key, u32);
	TYPE(value, struct slots);
} CPUS SEC(".maps");
struct {
	UINT(type, ARRAY);
	UINT(max_entries, MAX_CPUS);
	TYPE(key, u32);
	TYPE(value, struct page);
} PAGES SEC(".maps");
struct {
	UINT(type, ARRAY);
	UINT(max_entries, MAX_CPUS);
	TYPE(key, u32);
	TYPE(value, u64);
} ENDS SEC(".maps");
struct {
	UINT(type, TASK_STORAGE);
	UINT(map_flags, NO_PREALLOC);
	TYPE(key, int);
	TYPE(value, struct own);
} OWN SEC(".maps");

INLINE void ask(struct who *who)
{
	who->pids = bpf_get_current_pid_tgid();
	who->cgroup = bpf_get_current_cgroup_id();
	bpf_get_current_comm(who->comm, sizeof(who->comm));
}

INLINE u64 end_of_tick(u64 now)
{
	return (now / TICK_NS + 1) * TICK_NS;
}

// The time of the scheduler's own clock, which it read for this switch already.
INLINE u64 rq_clock(const struct task_struct *task)
{
	return task->se.cfs_rq->rq->clock;
}

// Slots in an array of this CPU, as the real program has them.
INLINE int with_slots(const struct task_struct *prev, u64 now)
{
	u32 cpu = bpf_get_smp_processor_id(), tid = prev->pid;
	struct slots *state = bpf_map_lookup_elem(&CPUS, &cpu);
	if (!state)
		return 0;
	if (now >= state->boundary || state->len >= SLOTS) {
		u64 len = state->len;
		if (len <= SLOTS)
			bpf_ringbuf_output(&RECORDS, state, 24 + len * sizeof(struct slot), NO_WAKEUP);
		state->len = 0;
		state->boundary = end_of_tick(now);
	}
	u64 index = 0;
#pragma unroll
	for (; index < SLOTS; index++)
		if (index >= state->len || state->slots[index].tid == tid)
			break;
	if (index >= SLOTS)
		return 0;
	struct slot *slot = &state->slots[index];
	if (index == state->len) {
		ask(&slot->who);
		slot->tid = tid;
		slot->wall = 0;
		slot->slices = 0;
		state->len++;
	}
	slot->wall += now - state->end;
	slot->slices++;
	state->end = now;
	return 0;
}

AT_SWITCH(empty)
{
	return 0;
}

AT_SWITCH(clock)
{
	return bpf_ktime_get_ns() == 0;
}

AT_SWITCH(clock_of_rq)
{
	return rq_clock((void *)ctx[2]) == 0;
}

AT_SWITCH(slots)
{
	return with_slots((void *)ctx[1], bpf_ktime_get_ns());
}

AT_SWITCH(slots_of_rq)
{
	return with_slots((void *)ctx[1], rq_clock((void *)ctx[2]));
}

// A value of each task. Nobody knows at the tick which tasks ran in it, so a value leaves when its task
// runs again.
AT_SWITCH(storage)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	struct own *own = bpf_task_storage_get(&OWN, (void *)ctx[1], 0, CREATE);
	u64 *end = bpf_map_lookup_elem(&ENDS, &cpu);
	if (!own || !end)
		return 0;
	if (now >= own->boundary) {
		bpf_ringbuf_output(&RECORDS, own, sizeof(*own), NO_WAKEUP);
		ask(&own->who);
		own->boundary = end_of_tick(now);
		own->wall = 0;
		own->slices = 0;
	}
	own->wall += now - *end;
	own->slices++;
	*end = now;
	return 0;
}

// Every slice, 16 bytes each. The page leaves with the tick or when it is full; a small table remembers
// who was named in this tick.
AT_SWITCH(pages)
{
	u64 now = bpf_ktime_get_ns();
	u32 cpu = bpf_get_smp_processor_id();
	u64 tid = ((struct task_struct *)ctx[1])->pid;
	struct page *page = bpf_map_lookup_elem(&PAGES, &cpu);
	if (!page)
		return 0;
	u64 len = page->len;
	if (now >= page->boundary || len >= SLICES) {
		if (len <= SLICES)
			bpf_ringbuf_output(&RECORDS, page, 16 + len * sizeof(struct slice), NO_WAKEUP);
		page->boundary = end_of_tick(now);
		len = 0;
	}
	u64 *known = &page->known[tid % KNOWN], name = page->boundary + tid;
	if (*known != name) {
		struct who who;
		ask(&who);
		bpf_ringbuf_output(&RECORDS, &who, sizeof(who), NO_WAKEUP);
		*known = name;
	}
	page->slices[len].tid = tid;
	page->slices[len].end = now;
	page->len = len + 1;
	return 0;
}
