// Programs for `cargo xtask bench ring` that send records as `uncore-trace-ebpf/src/emit.rs` does.
// The declarations are those of the kernel, so that no header is needed.

typedef unsigned int u32;
typedef unsigned long long u64;

#define SEC(name) __attribute__((section(name), used))

// Numbers of include/uapi/linux/bpf.h.
enum { ARRAY = 2, ARRAY_OF_MAPS = 12, RINGBUF = 27, NO_WAKEUP = 1 };
static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static long (*bpf_ringbuf_output)(void *ring, void *data, u64 size, u64 flags) = (void *)130;

#define RECORDS 64 // as in ring.rs
#define MOST_BYTES 1024

struct ring {
	int (*type)[RINGBUF];
	int (*max_entries)[1 << 25];
};

struct ring RING_0 SEC(".maps");
struct ring RING_1 SEC(".maps");

struct {
	int (*type)[ARRAY_OF_MAPS];
	int (*max_entries)[2];
	u32 *key;
	u32 *value;
	struct ring *values[];
} RINGS SEC(".maps");

struct record {
	char bytes[MOST_BYTES];
};

struct {
	int (*type)[ARRAY];
	int (*max_entries)[2];
	u32 *key;
	struct record *value;
} RECORD SEC(".maps");

// Bytes of a record; set before the programs are loaded.
volatile const u64 SIZE = 8;

char LICENSE[] SEC("license") = "Dual MIT/GPL";

SEC("socket") int empty(__attribute__((unused)) void *ctx)
{
	return 0;
}

// Sends RECORDS records; returns the number of those that found no room.
static inline int send(void *ring, u32 cpu)
{
	int refused = 0;
	void *record = bpf_map_lookup_elem(&RECORD, &cpu);

	if (!record)
		return RECORDS;
	for (int i = 0; i < RECORDS; i++)
		refused += bpf_ringbuf_output(ring, record, SIZE, NO_WAKEUP) < 0;
	return refused;
}

// All CPUs have one ring.
SEC("socket") int shared(__attribute__((unused)) void *ctx)
{
	return send(&RING_0, bpf_get_smp_processor_id() & 1);
}

// Each of two CPUs has its ring. The ring is looked up for each record.
SEC("socket") int grouped(__attribute__((unused)) void *ctx)
{
	u32 cpu = bpf_get_smp_processor_id() & 1;
	int refused = 0;
	void *record = bpf_map_lookup_elem(&RECORD, &cpu);

	if (!record)
		return RECORDS;
	for (int i = 0; i < RECORDS; i++) {
		void *ring = bpf_map_lookup_elem(&RINGS, &cpu);

		if (!ring)
			return RECORDS;
		refused += bpf_ringbuf_output(ring, record, SIZE, NO_WAKEUP) < 0;
	}
	return refused;
}
