// Small programs at sched_switch for `cargo xtask bench hook`: what the real one is compared with. The
// declarations are those of the kernel, so that no header is needed.

typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))
#define AT_SWITCH(name) SEC("tp_btf/sched_switch") int name(__attribute__((unused)) u64 *ctx)

// Number of include/uapi/linux/bpf.h.
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

AT_SWITCH(empty)
{
	return 0;
}

AT_SWITCH(clock)
{
	return bpf_ktime_get_ns() == 0;
}
