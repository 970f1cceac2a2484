// Small programs at sched_switch for `cargo xtask bench hook`: what the real one is compared with. The
// declarations are those of the kernel, so that no header is needed.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define AT_SWITCH(name) SEC("tp_btf/sched_switch") int name(__attribute__((unused)) u64 *ctx)

// Numbers of include/uapi/linux/bpf.h.
enum { HASH = 1, NO_EXIST = 1 };
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;

struct {
	int (*type)[HASH];
	int (*max_entries)[64];
	u32 *key;
	u32 *value;
} TURNS SEC(".maps");

char LICENSE[] SEC("license") = "Dual MIT/GPL";

AT_SWITCH(empty)
{
	return 0;
}

AT_SWITCH(clock)
{
	return bpf_ktime_get_ns() == 0;
}

// Takes a turn at counters that several CPUs read, and leaves it, as uncore-trace-ebpf/src/turn.rs does.
AT_SWITCH(turn)
{
	u32 turn = 1;

	if (bpf_map_update_elem(&TURNS, &turn, &turn, NO_EXIST) == 0)
		bpf_map_delete_elem(&TURNS, &turn);
	return 0;
}
