// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_CMN: the mesh of one die, an Arm CMN-700 with one debug and trace controller (DTC). Registers
 * as arm-cmn.c (Linux 7.2) names them.
 *
 * arg[0] columns, arg[1] rows, arg[2] revision (2 = r2p0), arg[4..12) the node ids of its CCLAs
 * (0: unused); what else is in the mesh says cmn_mesh.c. The SSDT describes it (ARMHC700, the whole
 * slot, one interrupt). A move's event is the event id, source the node id, target the node type
 * and from bit 16 on the kind of request that the driver's occupid chooses among (0: none of
 * them); type 3, event 0 are the DTC's cycles. Watchpoints have no moves and count nothing.
 *
 * Guarantees: a crosspoint's 16-bit lane advances only while the DTC enables the PMU and the lane's
 * input selects a node's event select that holds the event and, where the event has kinds, the
 * move's; it carries into the 32-bit counter of the DTC it is paired with, and that into the
 * overflow status and the interrupt. The cycle counter has 40 bits and needs the clock ungated.
 *
 * One difference: counts between the read of a DTC counter and the write of its start value are
 * kept. Hardware loses them, and the truth would then be a range instead of a number.
 */
#include <linux/bitfield.h>
#include <linux/err.h>

#include "cmn.h"

#define XP_DTM_CONFIG   (CMN_PMU + 0x210)
#define XP_DTM_PMEVCNT  (CMN_PMU + 0x220)

/* Of PMU_CONFIG, for lane n. */
#define DTM_ENABLE      BIT_ULL(0)
#define DTM_PAIRED(n)   BIT_ULL(4 + (n))
#define DTM_COUNTER(config, n) ((config) >> (16 + 4 * (n)) & 7)
#define DTM_INPUT(config, n) ((config) >> (32 + 8 * (n)) & 0x3f)
#define INPUT_XP        0x04
#define INPUT_DEVICE    0x10

#define DTC_CTL         0xa00
#define CTL_ENABLE      BIT(0)
#define CTL_UNGATED     BIT(10)
#define DTC_COUNTERS    CMN_PMU
#define DTC_CYCLES      (CMN_PMU + 0x40)
#define DTC_PMCR        (CMN_PMU + 0x100)
#define PMCR_ENABLE     BIT(0)
#define PMCR_RESET      BIT(5)
#define PMCR_INTERRUPT  BIT(6)
#define DTC_PMOVSR      (CMN_PMU + 0x118)
#define DTC_PMOVSR_CLR  (CMN_PMU + 0x120)
#define OVERFLOW_CYCLES BIT(CMN_COUNTERS)

#define COUNTER_MASK    GENMASK_ULL(31, 0)
#define CYCLES_MASK     GENMASK_ULL(39, 0)

/* What takes a DTC counter round less than once. */
#define AMOUNT_MAX      GENMASK_ULL(46, 0)

/* Kinds of requests are the values of occupid in the names of events. */
#define KIND_MAX        6

/* The events of each type of node: arm_cmn_event_attrs of arm-cmn.c for a CMN-700. */
static const struct {
	u16 type, first, last;
} events[] = {
	{ CMN_TYPE_DTC, 0x00, 0x00 },
	{ CMN_TYPE_HNI, 0x20, 0x32 },
	{ CMN_TYPE_HNF, 0x01, 0x2f },
	{ CMN_TYPE_SBSX, 0x01, 0x06 },
	{ CMN_TYPE_SBSX, 0x11, 0x17 },
	{ CMN_TYPE_SBSX, 0x21, 0x25 },
	{ CMN_TYPE_RNI, 0x01, 0x23 },
	{ CMN_TYPE_CCLA, 0x21, 0x2b },
};

static bool has_event(u16 type, u32 event)
{
	unsigned int i;

	/* Bits 1:0 are what, 4:2 where, 8:5 the channel: five, as there is one of each kind. */
	if (type == CMN_TYPE_XP)
		return event & 3 && event >> 5 < 5;
	for (i = 0; i < ARRAY_SIZE(events); i++)
		if (events[i].type == type && event >= events[i].first && event <= events[i].last)
			return true;
	return false;
}

static int cmn_define(struct lab_device *device)
{
	struct cmn *cmn = cmn_build(&device->def);

	if (IS_ERR(cmn))
		return PTR_ERR(cmn);
	device->state = cmn;
	return 0;
}

static u64 read_counter(struct cmn_counter *counter)
{
	counter->seen = counter->value;
	counter->was_seen = true;
	return counter->value;
}

static void write_counter(struct cmn_counter *counter, u64 value, u64 mask)
{
	u64 since = counter->was_seen ? counter->value - counter->seen : 0;

	counter->value = (value + since) & mask;
	counter->was_seen = false;
}

/* Whether the counter wrapped. */
static bool advance(struct cmn_counter *counter, u64 amount, u64 mask)
{
	u64 sum = counter->value + amount;

	counter->value = sum & mask;
	return sum > mask;
}

/* The DTC counter at an offset of its registers, two of them in each 16 bytes; or NULL. */
static struct cmn_counter *counter_at(struct cmn *cmn, u32 reg)
{
	u32 offset = reg - DTC_COUNTERS;

	if (reg < DTC_COUNTERS || reg >= DTC_CYCLES || offset & 8)
		return NULL;
	return &cmn->counter[offset / 16 * 2 + offset / 4 % 2];
}

static u64 read_dtc(struct cmn *cmn, u32 reg)
{
	struct cmn_counter *counter = counter_at(cmn, reg);

	if (counter)
		return read_counter(counter);
	switch (reg) {
	case DTC_CTL:
		return cmn->control;
	case DTC_CYCLES:
		return read_counter(&cmn->cycles);
	case DTC_PMCR:
		return cmn->pmu_control;
	case DTC_PMOVSR:
		return cmn->overflow;
	}
	return 0;
}

/* Raises what the status says: when it is set, and again when something is left of it. */
static void interrupt(struct lab_device *device)
{
	const struct cmn *cmn = device->state;

	if (cmn->overflow && cmn->pmu_control & PMCR_INTERRUPT)
		lab_raise(device);
}

static void write_pmcr(struct cmn *cmn, u32 value)
{
	unsigned int i;

	cmn->pmu_control = value & (PMCR_ENABLE | PMCR_INTERRUPT);
	if (!(value & PMCR_RESET))
		return;
	for (i = 0; i < CMN_COUNTERS; i++)
		cmn->counter[i] = (struct cmn_counter){};
	cmn->cycles = (struct cmn_counter){};
}

static void write_dtc(struct lab_device *device, u32 reg, u64 value)
{
	struct cmn *cmn = device->state;
	struct cmn_counter *counter = counter_at(cmn, reg);

	if (counter)
		return write_counter(counter, value, COUNTER_MASK);
	switch (reg) {
	case DTC_CTL:
		cmn->control = value;
		break;
	case DTC_CYCLES:
		write_counter(&cmn->cycles, value, CYCLES_MASK);
		break;
	case DTC_PMCR:
		write_pmcr(cmn, value);
		interrupt(device);
		break;
	case DTC_PMOVSR_CLR:
		cmn->overflow &= ~value;
		interrupt(device);
		break;
	}
}

/* A register of 64 bits that keeps what is written, or NULL. */
static u64 *plain_register(struct cmn_node *node, u32 reg)
{
	if (node->type == CMN_TYPE_XP && reg == XP_DTM_CONFIG)
		return &node->dtm.config;
	if (reg == CMN_PMU)
		return &node->select[0];
	if (reg == CMN_PMU + 8)
		return &node->select[1];
	return NULL;
}

static u64 read_lanes(const struct cmn_dtm *dtm)
{
	unsigned int i;
	u64 value = 0;

	for (i = 0; i < CMN_LANES; i++)
		value |= (u64)dtm->lane[i] << (16 * i);
	return value;
}

static u64 cmn_read(struct lab_device *device, u32 offset, unsigned int bytes)
{
	unsigned int region = offset / CMN_REGION, shift = offset & 4 ? 32 : 0;
	struct cmn *cmn = device->state;
	u32 reg = offset % CMN_REGION & ~7;
	struct cmn_node *node;
	u64 *plain;
	u64 value;

	if (region > cmn->nodes)
		return 0;
	if (!region)
		return cmn_root_register(cmn, reg) >> shift;
	node = &cmn->node[region - 1];
	if (node->type == CMN_TYPE_DTC && offset % CMN_REGION >= DTC_CTL)
		return read_dtc(cmn, offset % CMN_REGION);
	plain = plain_register(node, reg);
	if (plain)
		value = *plain;
	else if (node->type == CMN_TYPE_XP && reg == XP_DTM_PMEVCNT)
		value = read_lanes(&node->dtm);
	else
		value = cmn_node_register(cmn, region - 1, reg);
	return value >> shift;
}

static void cmn_write(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
	unsigned int region = offset / CMN_REGION, shift = offset & 4 ? 32 : 0;
	struct cmn *cmn = device->state;
	u64 mask = bytes == 8 ? ~0ULL : COUNTER_MASK << shift;
	u64 *plain;

	if (!region || region > cmn->nodes)
		return;
	if (cmn->node[region - 1].type == CMN_TYPE_DTC)
		return write_dtc(device, offset % CMN_REGION, value);
	plain = plain_register(&cmn->node[region - 1], offset % CMN_REGION & ~7);
	if (plain)
		*plain = (*plain & ~mask) | (value << shift & mask);
}

/*
 * Whether an HN-F counts a request of a kind, with the upper half of its event select: of occupancy
 * and throttling 0 stands for all kinds, and of throttling 5 and 6 for the reads and the writes of
 * both groups; of classes 0 is a class.
 */
static bool counts_kind(u32 event, u64 select, unsigned int kind)
{
	unsigned int chosen;

	switch (event) {
	case 0x0f:
		chosen = FIELD_GET(GENMASK_ULL(34, 32), select);
		return !chosen || chosen == kind;
	case 0x26 ... 0x29:
		return FIELD_GET(GENMASK_ULL(36, 35), select) == kind;
	case 0x2a ... 0x2b:
		chosen = FIELD_GET(GENMASK_ULL(44, 42), select);
		if (chosen == 5 || chosen == 6)
			return kind == chosen - 4 || kind == chosen - 2;
		return !chosen || chosen == kind;
	}
	return true;
}

/* Whether lane n of the crosspoint is programmed for what happens at the node. */
static bool lane_counts(const struct cmn_node *node, const struct cmn_dtm *dtm, unsigned int n,
			const struct lab_move *move)
{
	unsigned int input = DTM_INPUT(dtm->config, n);
	u64 select = node->select[node->type == CMN_TYPE_CCLA];

	if (node->type == CMN_TYPE_XP)
		return input >= INPUT_XP && input < INPUT_XP + CMN_LANES &&
		       (select >> (16 * (input - INPUT_XP)) & 0xffff) == move->event;
	if ((input & ~3) != INPUT_DEVICE + (CMN_PORT(node->id) << 4) + (CMN_DEVICE(node->id) << 2))
		return false;
	if ((select >> (8 * (input & 3)) & 0xff) != move->event)
		return false;
	return node->type != CMN_TYPE_HNF || counts_kind(move->event, select, move->target >> 16);
}

static void advance_lane(struct cmn *cmn, struct cmn_dtm *dtm, unsigned int n, u64 amount)
{
	u64 sum = dtm->lane[n] + amount;
	unsigned int counter = DTM_COUNTER(dtm->config, n);

	dtm->lane[n] = sum;
	if (dtm->config & DTM_PAIRED(n) &&
	    advance(&cmn->counter[counter], sum >> 16, COUNTER_MASK))
		cmn->overflow |= BIT(counter);
}

static void advance_lanes(struct cmn *cmn, const struct cmn_node *node, const struct lab_move *move)
{
	struct cmn_dtm *dtm = &cmn->node[node->xp].dtm;
	unsigned int n;

	if (!(dtm->config & DTM_ENABLE))
		return;
	for (n = 0; n < CMN_LANES; n++)
		if (lane_counts(node, dtm, n, move))
			advance_lane(cmn, dtm, n, move->amount);
}

static void advance_cycles(struct cmn *cmn, u64 amount)
{
	if (cmn->control & CTL_UNGATED && advance(&cmn->cycles, amount, CYCLES_MASK))
		cmn->overflow |= OVERFLOW_CYCLES;
}

static struct cmn_node *find_node(struct cmn *cmn, u16 type, u64 id)
{
	unsigned int i;

	for (i = 0; i < cmn->nodes; i++)
		if (cmn->node[i].type == type && cmn->node[i].id == id)
			return &cmn->node[i];
	return NULL;
}

static int cmn_move(struct lab_device *device, const struct lab_move *move)
{
	struct cmn *cmn = device->state;
	u16 type = move->target;
	struct cmn_node *node = find_node(cmn, type, move->source);
	u32 before;

	if (!node || !has_event(type, move->event))
		return -EINVAL;
	if (move->target >> 16 > (type == CMN_TYPE_HNF ? KIND_MAX : 0))
		return -EINVAL;
	if (move->amount > (type == CMN_TYPE_DTC ? CYCLES_MASK : AMOUNT_MAX))
		return -EINVAL;
	if (!(cmn->control & CTL_ENABLE) || !(cmn->pmu_control & PMCR_ENABLE))
		return 0;
	before = cmn->overflow;
	if (type == CMN_TYPE_DTC)
		advance_cycles(cmn, move->amount);
	else
		advance_lanes(cmn, node, move);
	if (cmn->overflow != before)
		interrupt(device);
	return 0;
}

const struct lab_kind lab_cmn = {
	.id = LAB_CMN,
	.name = "cmn",
	.define = cmn_define,
	.read = cmn_read,
	.write = cmn_write,
	.move = cmn_move,
};
