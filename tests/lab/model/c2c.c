// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_C2C: T410's PMUs of its links to other chips. Registers as nvidia_t410_c2c_pmu.c (Linux 7.2)
 * names them: a page for each instance, then a page whose writes go to all of them.
 *
 *   arg[0] instances: 14 NVLink-C2C (NVDA2023), 12 NV-CLink (NVDA2022), 16 NV-DLink (NVDA2020)
 *
 * The SSDT describes it, and which instance leads to which peer. A move's event is the driver's
 * number 0..8, source the instance; target is 0. The instances share a clock, of which the driver
 * reads one instance: move cycles in the first instance of each peer.
 *
 * Guarantees: counters advance between start and stop, keep their values when stopped, and start
 * from zero. They are read in halves of 32 bits.
 */
#include <linux/bits.h>
#include <linux/mm.h>

#include "model.h"

#define MOST_INSTANCES 16
#define EVENTS         9
#define PAGE           0x1000

#define CTRL       0x864
#define IN_STATUS  0x868
#define OUT_STATUS 0x890

#define CTRL_ENABLE BIT(0)

/* The first of the events whose overflow is in OUT_STATUS. */
#define FIRST_OUT 5

/* Low halves of the counters, by event. */
static const u16 counter_offset[EVENTS] = {
	0x86c, 0x874, 0x87c, 0x884, 0x88c, 0x898, 0x8a0, 0x8a8, 0x8b0,
};

struct instance {
	bool running;
	u32 in_status;
	u32 out_status;
	u64 counter[EVENTS];
};

static int c2c_define(struct lab_device *device)
{
	u64 instances = device->def.arg[0];

	if (!instances || instances > MOST_INSTANCES)
		return -EINVAL;
	device->state = kvcalloc(instances, sizeof(struct instance), GFP_KERNEL);
	return device->state ? 0 : -ENOMEM;
}

static u64 c2c_read(struct lab_device *device, u32 offset, unsigned int bytes)
{
	const struct instance *instances = device->state;
	const struct instance *instance = &instances[offset / PAGE];
	u32 reg = offset % PAGE;
	unsigned int i;

	if (offset / PAGE >= device->def.arg[0] || bytes != 4)
		return 0;
	switch (reg) {
	case CTRL:
		return instance->running ? CTRL_ENABLE : 0;
	case IN_STATUS:
		return instance->in_status;
	case OUT_STATUS:
		return instance->out_status;
	}
	for (i = 0; i < EVENTS; i++) {
		if (reg == counter_offset[i])
			return lower_32_bits(instance->counter[i]);
		if (reg == counter_offset[i] + 4)
			return upper_32_bits(instance->counter[i]);
	}
	return 0;
}

static void write_control(struct instance *instance, u32 value)
{
	bool run = value & CTRL_ENABLE;

	if (run && !instance->running)
		memset(instance, 0, sizeof(*instance));
	instance->running = run;
}

static void c2c_write(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
	struct instance *instances = device->state;
	u32 page = offset / PAGE;
	unsigned int i;

	if (offset % PAGE != CTRL || bytes != 4)
		return;
	for (i = 0; i < device->def.arg[0]; i++)
		if (page == i || page == device->def.arg[0])
			write_control(&instances[i], value);
}

static int c2c_move(struct lab_device *device, const struct lab_move *move)
{
	struct instance *instances = device->state;
	struct instance *instance;
	u64 *counter;

	if (move->event >= EVENTS || move->source >= device->def.arg[0] || move->target)
		return -EINVAL;
	instance = &instances[move->source];
	if (!instance->running)
		return 0;
	counter = &instance->counter[move->event];
	*counter += move->amount;
	if (*counter >= move->amount)
		return 0;
	if (move->event < FIRST_OUT)
		instance->in_status |= BIT(move->event);
	else
		instance->out_status |= BIT(move->event - FIRST_OUT);
	return 0;
}

const struct lab_kind lab_c2c = {
	.id = LAB_C2C,
	.name = "c2c",
	.define = c2c_define,
	.read = c2c_read,
	.write = c2c_write,
	.move = c2c_move,
};
