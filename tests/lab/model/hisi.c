// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_HISI: an uncore PMU of HiSilicon's Kunpeng: DDR controller, home agent or L3 cache. Registers as
 * hisi_uncore_ddrc_pmu.c, hisi_uncore_hha_pmu.c and hisi_uncore_l3c_pmu.c (Linux 7.2) name them.
 *
 *   arg[0] which one, an index of layouts[]
 *
 * The SSDT describes it (HISI0233 and so on: four pages of memory, one interrupt, properties). A
 * move's event is the hardware's number. Of an L3 cache its source is the number of a core in the
 * cluster and its target a kind of request (0 read, 1 write, 2 and 3 atomics); of the others both
 * are 0.
 *
 * Guarantees: a counter advances only while the PMU runs, the counter is enabled, its event is the
 * move's and, of an L3 cache, the filters of the whole cache let the move pass; it wraps at its
 * width, and tells of that by status and interrupt.
 */
#include <linux/bits.h>
#include <linux/cpumask.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/topology.h>

#include "model.h"

#define COUNTERS 16

/* L3 cache: the filters. */
#define CORE_CTRL      0x1b04
#define TRACETAG_CTRL  0x1b20
#define PERF_REQUESTS  BIT(31)
#define PERF_CORES     BIT(20)
#define REQUEST_SHIFT  7
#define REQUESTS       4

struct layout {
	u32 version_at;
	u32 version;
	u32 control;
	u32 running;     /* the bit of `control` that starts all counters */
	u32 enable;
	u32 int_mask;
	u32 int_status;
	u32 int_clear;
	u32 type;        /* 0: counter n has event n and is at fixed[n] */
	u32 type_bytes;  /* distance of the event fields of counters */
	u32 counter;     /* 8 bytes each */
	u32 counters;
	u32 bits;
	u32 events;      /* the highest number of an event */
	bool filters;
};

static const u32 fixed[] = { 0x380, 0x384, 0x388, 0x38c, 0x3c0, 0x3c4, 0x3cc, 0x3d0 };

static const struct layout layouts[] = {
	{ /* DDR controller, first generation */
		.version_at = 0x710, .version = 0x20, .control = 0x10, .running = 0x2,
		.enable = 0x6c0, .int_mask = 0x6c8, .int_status = 0x6cc, .int_clear = 0x6d0,
		.counters = 8, .bits = 32, .events = 7,
	},
	{ /* DDR controller, second generation */
		.version_at = 0x710, .version = 0x30, .control = 0xea0, .running = 0x1,
		.enable = 0xe70, .int_mask = 0x528, .int_status = 0x52c, .int_clear = 0x530,
		.type = 0xe74, .type_bytes = 4, .counter = 0xe00,
		.counters = 8, .bits = 48, .events = 0xff,
	},
	{ /* Home agent, first generation */
		.version_at = 0x1cf0, .version = 0x20, .control = 0x1e00, .running = 0x1,
		.enable = 0x1e04, .int_mask = 0x804, .int_status = 0x808, .int_clear = 0x80c,
		.type = 0x1e80, .type_bytes = 1, .counter = 0x1f00,
		.counters = 16, .bits = 48, .events = 0x65,
	},
	{ /* Home agent, second generation */
		.version_at = 0x1cf0, .version = 0x30, .control = 0x1e00, .running = 0x1,
		.enable = 0x1e04, .int_mask = 0x804, .int_status = 0x808, .int_clear = 0x80c,
		.type = 0x1e80, .type_bytes = 1, .counter = 0x1f00,
		.counters = 8, .bits = 64, .events = 0xff,
	},
	{ /* L3 cache, first generation */
		.version_at = 0x1cf0, .version = 0x20, .control = 0x408, .running = 0x10000,
		.enable = 0x1c00, .int_mask = 0x800, .int_status = 0x808, .int_clear = 0x80c,
		.type = 0x1d00, .type_bytes = 1, .counter = 0x1e00,
		.counters = 8, .bits = 48, .events = 0x59,
	},
	{ /* L3 cache, second generation */
		.version_at = 0x1cf0, .version = 0x30, .control = 0x408, .running = 0x10000,
		.enable = 0x1c00, .int_mask = 0x800, .int_status = 0x808, .int_clear = 0x80c,
		.type = 0x1d00, .type_bytes = 1, .counter = 0x1e00,
		.counters = 8, .bits = 64, .events = 0xff, .filters = true,
	},
};

struct unit {
	const struct layout *layout;
	u64 counter[COUNTERS];
	u32 type[COUNTERS];
	u32 control;
	u32 enabled;
	u32 masked; /* counters whose overflow does not interrupt */
	u32 status;
	u32 cores;
	u32 tags;
};

static int hisi_define(struct lab_device *device)
{
	struct unit *unit;
	unsigned int i;

	if (device->def.arg[0] >= ARRAY_SIZE(layouts))
		return -EINVAL;
	unit = kvzalloc(sizeof(*unit), GFP_KERNEL);
	if (!unit)
		return -ENOMEM;
	unit->layout = &layouts[device->def.arg[0]];
	unit->masked = ~0U;
	for (i = 0; !unit->layout->type && i < unit->layout->counters; i++)
		unit->type[i] = i;
	device->state = unit;
	return 0;
}

/* The counter at an offset, or NULL. */
static u64 *counter_at(struct unit *unit, u32 offset)
{
	const struct layout *layout = unit->layout;
	unsigned int i;

	if (!layout->type) {
		for (i = 0; i < ARRAY_SIZE(fixed); i++)
			if (offset == fixed[i])
				return &unit->counter[i];
		return NULL;
	}
	i = (offset - layout->counter) / 8;
	return offset >= layout->counter && i < layout->counters ? &unit->counter[i] : NULL;
}

/* The first of the counters whose events are in the word at an offset, or -1. */
static int first_of_word(const struct layout *layout, u32 offset)
{
	u32 at = offset - layout->type;

	if (!layout->type || offset < layout->type || at >= layout->counters * layout->type_bytes)
		return -1;
	return at / layout->type_bytes;
}

static u32 read_types(const struct unit *unit, unsigned int first)
{
	u32 value = 0;
	unsigned int i;

	if (unit->layout->type_bytes == 4)
		return unit->type[first];
	for (i = 0; i < 4; i++)
		value |= unit->type[first + i] << (8 * i);
	return value;
}

static void write_types(struct unit *unit, unsigned int first, u32 value)
{
	unsigned int i;

	if (unit->layout->type_bytes == 4) {
		unit->type[first] = value;
		return;
	}
	for (i = 0; i < 4; i++)
		unit->type[first + i] = value >> (8 * i) & 0xff;
}

static u64 hisi_read(struct lab_device *device, u32 offset, unsigned int bytes)
{
	struct unit *unit = device->state;
	const struct layout *layout = unit->layout;
	u64 *counter = counter_at(unit, offset);
	int first = first_of_word(layout, offset);

	if (counter)
		return *counter;
	if (first >= 0)
		return read_types(unit, first);
	if (offset == layout->version_at)
		return layout->version;
	if (offset == layout->control)
		return unit->control;
	if (offset == layout->enable)
		return unit->enabled;
	if (offset == layout->int_mask)
		return unit->masked;
	if (offset == layout->int_status)
		return unit->status;
	if (layout->filters && offset == CORE_CTRL)
		return unit->cores;
	if (layout->filters && offset == TRACETAG_CTRL)
		return unit->tags;
	return 0;
}

static void hisi_write(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
	struct unit *unit = device->state;
	const struct layout *layout = unit->layout;
	u64 *counter = counter_at(unit, offset);
	int first = first_of_word(layout, offset);

	if (counter)
		*counter = value & GENMASK_ULL(layout->bits - 1, 0);
	else if (first >= 0)
		write_types(unit, first, value);
	else if (offset == layout->control)
		unit->control = value;
	else if (offset == layout->enable)
		unit->enabled = value;
	else if (offset == layout->int_mask)
		unit->masked = value;
	else if (offset == layout->int_clear)
		unit->status &= ~value;
	else if (layout->filters && offset == CORE_CTRL)
		unit->cores = value;
	else if (layout->filters && offset == TRACETAG_CTRL)
		unit->tags = value;
}

static bool filters_pass(const struct unit *unit, const struct lab_move *move)
{
	if (!unit->layout->filters)
		return true;
	if (unit->control & PERF_CORES && !(unit->cores & BIT(move->source)))
		return false;
	/* Reads are 4, writes 5, atomics 6 and 7. */
	return !(unit->control & PERF_REQUESTS) ||
	       (unit->tags >> REQUEST_SHIFT & 7) == REQUESTS + move->target;
}

static int hisi_move(struct lab_device *device, const struct lab_move *move)
{
	struct unit *unit = device->state;
	const struct layout *layout = unit->layout;
	u64 most = GENMASK_ULL(layout->bits - 1, 0);
	bool raise = false;
	unsigned int i;

	if (move->event > layout->events || move->amount > most ||
	    move->source >= (layout->filters ? 16 : 1) ||
	    move->target >= (layout->filters ? REQUESTS : 1))
		return -EINVAL;
	if (!(unit->control & layout->running) || !filters_pass(unit, move))
		return 0;
	for (i = 0; i < layout->counters; i++) {
		bool wraps = move->amount > most - unit->counter[i];

		if (!(unit->enabled & BIT(i)) || unit->type[i] != move->event)
			continue;
		unit->counter[i] = (unit->counter[i] + move->amount) & most;
		if (!wraps)
			continue;
		unit->status |= BIT(i);
		raise |= !(unit->masked & BIT(i));
	}
	if (raise)
		lab_raise(device);
	return 0;
}

/*
 * The value of MPIDR_EL1 of this CPU on a Kunpeng without threads: the die in affinity 2, the cluster in
 * affinity 1. Dies of the lab are its NUMA nodes, clusters have two CPUs.
 */
u64 lab_hisi_mpidr(void)
{
	unsigned int cpu = raw_smp_processor_id();

	return (u64)cpu_to_node(cpu) << 16 | (u64)(cpu / 2) << 8 | (cpu % 2);
}
EXPORT_SYMBOL_GPL(lab_hisi_mpidr);

const struct lab_kind lab_hisi = {
	.id = LAB_HISI,
	.name = "hisi",
	.define = hisi_define,
	.read = hisi_read,
	.write = hisi_write,
	.move = hisi_move,
};
