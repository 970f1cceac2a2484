// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_CMEM: T410's CPU memory latency PMU. Registers as nvidia_t410_cmem_latency_pmu.c (Linux 7.2)
 * names them: 14 pages of instances, then a page whose writes go to all of them.
 *
 * It has no arguments; the SSDT describes it (NVDA2021). A move's event is 0 cycles, 1 read
 * requests, 2 outstanding reads summed over cycles; source is the instance, target the memory
 * controller 0..2. Cycles are those of instance 0: the hardware runs all from one clock, and the
 * driver looks at the first only.
 *
 * Guarantees: counters advance only while clock and counters are on, keep their values when
 * stopped, and go to zero by the command alone.
 */
#include <linux/bits.h>
#include <linux/mm.h>

#include "model.h"

#define INSTANCES   14
#define CONTROLLERS 3
#define PAGE        0x1000
#define BROADCAST   INSTANCES

#define CG_CTRL     0x800
#define CTRL        0x808
#define STATUS      0x810
#define CYCLE_CNTR  0x818
#define MC0_REQ     0x820
#define MC0_AOR     0x830
#define MC_STRIDE   0x18

#define CTRL_ENABLE BIT(0)
#define CTRL_CLR    BIT(1)

/* Bits of STATUS: the cycle counter's, and from bit 1 on three for each memory controller. */
#define CYCLE_OVF   BIT(0)
#define AOR_OVF(mc) BIT(1 + 3 * (mc))
#define REQ_OVF(mc) BIT(3 + 3 * (mc))

enum { CYCLES, REQUESTS, OUTSTANDING };

struct instance {
	u64 clock;
	u64 control;
	u64 status;
	u64 cycles;
	u64 requests[CONTROLLERS];
	u64 outstanding[CONTROLLERS];
};

static int cmem_define(struct lab_device *device)
{
	device->state = kvcalloc(INSTANCES, sizeof(struct instance), GFP_KERNEL);
	return device->state ? 0 : -ENOMEM;
}

static u64 read_counter(const struct instance *instance, u32 reg)
{
	unsigned int mc = (reg - MC0_REQ) / MC_STRIDE;

	if (reg < MC0_REQ || mc >= CONTROLLERS)
		return 0;
	switch (reg - mc * MC_STRIDE) {
	case MC0_REQ:
		return instance->requests[mc];
	case MC0_AOR:
		return instance->outstanding[mc];
	}
	return 0;
}

static u64 cmem_read(struct lab_device *device, u32 offset, unsigned int bytes)
{
	const struct instance *instances = device->state;
	const struct instance *instance = &instances[offset / PAGE];

	if (offset / PAGE >= INSTANCES || bytes != 8)
		return 0;
	switch (offset % PAGE) {
	case CG_CTRL:
		return instance->clock;
	case CTRL:
		return instance->control;
	case STATUS:
		return instance->status;
	case CYCLE_CNTR:
		return instance->cycles;
	}
	return read_counter(instance, offset % PAGE);
}

static void write_instance(struct instance *instance, u32 reg, u64 value)
{
	switch (reg) {
	case CG_CTRL:
		instance->clock = value & 1;
		return;
	case CTRL:
		if (!instance->clock) /* nothing moves in it without one */
			return;
		instance->control = value & CTRL_ENABLE;
		if (!(value & CTRL_CLR))
			return;
		instance->status = 0;
		instance->cycles = 0;
		memset(instance->requests, 0, sizeof(instance->requests));
		memset(instance->outstanding, 0, sizeof(instance->outstanding));
	}
}

static void cmem_write(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
	struct instance *instances = device->state;
	u32 page = offset / PAGE;
	unsigned int i;

	if (bytes != 8)
		return;
	for (i = 0; i < INSTANCES; i++)
		if (page == i || page == BROADCAST)
			write_instance(&instances[i], offset % PAGE, value);
}

static int cmem_move(struct lab_device *device, const struct lab_move *move)
{
	struct instance *instances = device->state;
	struct instance *instance;
	u64 *counter, overflow;

	if (move->source >= INSTANCES || move->target >= CONTROLLERS)
		return -EINVAL;
	instance = &instances[move->source];
	switch (move->event) {
	case CYCLES:
		if (move->source || move->target)
			return -EINVAL;
		counter = &instance->cycles;
		overflow = CYCLE_OVF;
		break;
	case REQUESTS:
		counter = &instance->requests[move->target];
		overflow = REQ_OVF(move->target);
		break;
	case OUTSTANDING:
		counter = &instance->outstanding[move->target];
		overflow = AOR_OVF(move->target);
		break;
	default:
		return -EINVAL;
	}
	if (!instance->clock || !(instance->control & CTRL_ENABLE))
		return 0;
	*counter += move->amount;
	if (*counter < move->amount)
		instance->status |= overflow;
	return 0;
}

const struct lab_kind lab_cmem = {
	.id = LAB_CMEM,
	.name = "cmem",
	.define = cmem_define,
	.read = cmem_read,
	.write = cmem_write,
	.move = cmem_move,
};
