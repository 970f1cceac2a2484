// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_DRW: the PMU of one sub-channel of Alibaba's DDR driveway. Registers as
 * alibaba_uncore_drw_pmu.c (Linux 7.2) names them, in the first page of the slot.
 *
 * It has no arguments; the SSDT describes it (BABA5000, one page of memory, one interrupt). A
 * move's event is 0..0x3f or 0x80, the cycles; source and target are 0, and a portion that would
 * take a counter round more than once is refused.
 *
 * Guarantees: a counter advances only while the unit runs and the counter's select byte enables the
 * event; the sixteen counters have 32 bits and tell of their overflow by status and interrupt, the
 * cycle counter has 56; the reset command sets all of them to zero, whoever counts with them.
 */
#include <linux/bits.h>
#include <linux/mm.h>

#include "model.h"

#define COUNTERS      16
#define CYCLES        0x80
#define EVENTS        0x40

#define CNT_CTRL      0xc00
#define CNT_STATE     0xc04
#define TEST_CTRL     0xc08
#define CNT_PRELOAD   0xc0c
#define CYCLE_HIGH    0xc10
#define CYCLE_LOW     0xc14
#define EVENT_SEL0    0xc68
#define COUNTER0      0xc78
#define OV_ENABLE     0xcb8
#define OV_DISABLE    0xcbc
#define OV_ENABLED    0xcc0
#define OV_CLEAR      0xcc4
#define OV_STATUS     0xcc8

#define CTRL_START    BIT(0)
#define CTRL_STOP     BIT(1)
#define CTRL_RESET    BIT(2)

/* A value of TEST_CTRL from here on lets CNT_PRELOAD set counter 0 and the following ones. */
#define TEST_COUNTER0 19

#define SEL_ENABLE    BIT(7)
#define SEL_EVENT     GENMASK(5, 0)

#define OVERFLOW(n)   BIT(8 + (n))
#define CYCLE_MASK    GENMASK_ULL(55, 0)

struct unit {
	u32 counter[COUNTERS];
	u8 select[COUNTERS];
	u64 cycles;
	u32 test;
	u32 status;
	u32 enabled; /* overflows that interrupt */
	bool running;
};

static int drw_define(struct lab_device *device)
{
	device->state = kvzalloc(sizeof(struct unit), GFP_KERNEL);
	return device->state ? 0 : -ENOMEM;
}

static u32 read_select(const struct unit *unit, unsigned int first)
{
	u32 value = 0;
	unsigned int i;

	for (i = 0; i < 4; i++)
		value |= (u32)unit->select[first + i] << (8 * i);
	return value;
}

static u64 drw_read(struct lab_device *device, u32 offset, unsigned int bytes)
{
	const struct unit *unit = device->state;

	if (bytes != 4)
		return 0;
	if (offset >= EVENT_SEL0 && offset < COUNTER0)
		return read_select(unit, offset - EVENT_SEL0);
	if (offset >= COUNTER0 && offset < COUNTER0 + 4 * COUNTERS)
		return unit->counter[(offset - COUNTER0) / 4];
	switch (offset) {
	case CNT_STATE:
		return unit->running;
	case TEST_CTRL:
		return unit->test;
	case CYCLE_HIGH:
		return upper_32_bits(unit->cycles);
	case CYCLE_LOW:
		return lower_32_bits(unit->cycles);
	case OV_ENABLED:
		return unit->enabled;
	case OV_STATUS:
		return unit->status;
	}
	return 0;
}

static void command(struct unit *unit, u32 value)
{
	if (value & CTRL_RESET) {
		memset(unit->counter, 0, sizeof(unit->counter));
		unit->cycles = 0;
		unit->status = 0;
	}
	if (value & CTRL_STOP)
		unit->running = false;
	if (value & CTRL_START)
		unit->running = true;
}

static void write_select(struct unit *unit, unsigned int first, u32 value)
{
	unsigned int i;

	for (i = 0; i < 4; i++)
		unit->select[first + i] = value >> (8 * i);
}

/* Raises what the status says: when it is set, and again when something is left of it. */
static void interrupt(struct lab_device *device)
{
	const struct unit *unit = device->state;

	if (unit->status & unit->enabled)
		lab_raise(device);
}

static void drw_write(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
	struct unit *unit = device->state;

	if (bytes != 4)
		return;
	if (offset >= EVENT_SEL0 && offset < COUNTER0)
		return write_select(unit, offset - EVENT_SEL0, value);
	switch (offset) {
	case CNT_CTRL:
		command(unit, value);
		break;
	case TEST_CTRL:
		unit->test = value;
		break;
	case CNT_PRELOAD:
		if (unit->test >= TEST_COUNTER0 && unit->test < TEST_COUNTER0 + COUNTERS)
			unit->counter[unit->test - TEST_COUNTER0] = value;
		break;
	case OV_ENABLE:
		unit->enabled |= value;
		interrupt(device);
		break;
	case OV_DISABLE:
		unit->enabled &= ~value;
		break;
	case OV_CLEAR:
		unit->status &= ~value;
		interrupt(device);
		break;
	}
}

static int drw_move(struct lab_device *device, const struct lab_move *move)
{
	struct unit *unit = device->state;
	bool overflow = false;
	unsigned int i;

	if (move->source || move->target || (move->event >= EVENTS && move->event != CYCLES))
		return -EINVAL;
	if (move->amount > (move->event == CYCLES ? CYCLE_MASK : U32_MAX))
		return -EINVAL;
	if (!unit->running)
		return 0;
	if (move->event == CYCLES) {
		unit->cycles = (unit->cycles + move->amount) & CYCLE_MASK;
		return 0;
	}
	for (i = 0; i < COUNTERS; i++) {
		u64 sum = unit->counter[i] + move->amount;

		if (!(unit->select[i] & SEL_ENABLE) || (unit->select[i] & SEL_EVENT) != move->event)
			continue;
		unit->counter[i] = sum;
		if (sum >> 32) {
			unit->status |= OVERFLOW(i);
			overflow = true;
		}
	}
	if (overflow)
		interrupt(device);
	return 0;
}

const struct lab_kind lab_drw = {
	.id = LAB_DRW,
	.name = "drw",
	.define = drw_define,
	.read = drw_read,
	.write = drw_write,
	.move = drw_move,
};
