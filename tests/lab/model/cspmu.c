// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_CSPMU: a PMU of the CoreSight architecture (Arm IHI 0091), with the filters of NVIDIA's
 * products. Registers as drivers/perf/arm_cspmu/arm_cspmu.h (Linux 7.2) names them; filters as
 * nvidia_cspmu.c (7.2) programs them.
 *
 *   arg[0] PMIIDR
 *   arg[1] PMCFGR: counters - 1 | (bits - 1) << 8 | (has a cycle counter) << 14
 *   arg[2] type of its APMT node: 0 memory controller, 3 the ACPI device of _HID `text`
 *   arg[3] that device's _UID
 *
 * A move's event is the hardware's number or LAB_CYCLES. What source and target are depends on the
 * product, see filter_passes().
 *
 * Guarantees: a counter advances only while the PMU and the counter are enabled, its event type is
 * the move's, and its filter lets the move pass; it wraps at its width and sets its overflow bit.
 * Registers that do not exist read as zero and ignore writes.
 */
#include <linux/acpi.h>
#include <linux/bitfield.h>
#include <linux/mm.h>

#include "model.h"

#define PMEVTYPER  0x400
#define PMCCFILTR  0x47c
#define PMEVFILT2R 0x800
#define PMEVFILTR  0xa00
#define PMCNTENSET 0xc00
#define PMCNTENCLR 0xc20
#define PMINTENSET 0xc40
#define PMINTENCLR 0xc60
#define PMOVSCLR   0xc80
#define PMOVSSET   0xcc0
#define PMCFGR     0xe00
#define PMCR       0xe04
#define PMIIDR     0xe08

#define PMCFGR_N    GENMASK(7, 0)
#define PMCFGR_SIZE GENMASK(13, 8)
#define PMCFGR_CC   BIT(14)

#define PMCR_E BIT(0)
#define PMCR_P BIT(1)
#define PMCR_C BIT(2)

/* The cycle counter's place, whatever the number of counters. */
#define CYCLES 31
/* One register's worth of enable bits; no product of interest has more. */
#define COUNTERS 32

/* Product, variant and revision in PMIIDR. */
#define PRODUCT GENMASK(31, 12)

#define PRODUCT_GRACE_PCIE 0x10300000
#define PRODUCT_T410_PCIE  0x10301000
#define PRODUCT_C2C1       0x10400000
#define PRODUCT_C2C0       0x10500000
#define PRODUCT_CNVLINK    0x10600000
#define PRODUCT_PCIE_TGT   0x10700000
#define PRODUCT_UCF        0x2cf20000

/* PCIe-TGT's address filters, in a page of their own; NV_PCIE_TGT_ADDR_* of nvidia_cspmu.c. */
#define TGT_PAGE   0x10000
#define TGT_FIRST  (TGT_PAGE + 0xd38)
#define TGT_STRIDE 20
#define TGT_SLOTS  8

struct address_filter {
	u32 on;
	u32 base[2]; /* low, high */
	u32 mask[2];
};

static_assert(sizeof(struct address_filter) == TGT_STRIDE);

struct cspmu {
	u64 counter[COUNTERS];
	u32 type[COUNTERS];
	u32 filter[COUNTERS];
	u32 filter2[COUNTERS];
	u32 exists; /* counters, one bit each, as in the three below */
	u32 enabled;
	u32 interrupts;
	u32 overflowed;
	u32 cycle_filter;
	bool running;
	struct address_filter address[TGT_SLOTS];
};

static u32 product(const struct lab_device *device)
{
	return device->def.arg[0] & PRODUCT;
}

static unsigned int width(const struct lab_device *device)
{
	return FIELD_GET(PMCFGR_SIZE, device->def.arg[1]) + 1;
}

/* Distance of counter registers: those wider than 32 bits take 8 bytes. */
static unsigned int stride(const struct lab_device *device)
{
	return width(device) > 32 ? 8 : 4;
}

static bool is_cycle_counter(const struct lab_device *device, unsigned int i)
{
	return i == CYCLES && device->def.arg[1] & PMCFGR_CC;
}

static int cspmu_define(struct lab_device *device)
{
	unsigned int counters = FIELD_GET(PMCFGR_N, device->def.arg[1]) + 1;
	bool cycles = device->def.arg[1] & PMCFGR_CC;
	struct cspmu *pmu;

	if (counters > COUNTERS || !device->def.arg[0] || !device->def.cpus ||
	    device->def.arg[2] >= ACPI_APMT_NODE_TYPE_COUNT)
		return -EINVAL;
	pmu = kvzalloc(sizeof(*pmu), GFP_KERNEL);
	if (!pmu)
		return -ENOMEM;
	pmu->exists = GENMASK_ULL(counters, 0) >> 1;
	if (cycles)
		pmu->exists = pmu->exists >> 1 | BIT(CYCLES);
	device->state = pmu;
	return 0;
}

/* The counter's register at an offset, and which half of it. */
static u64 *counter_at(struct lab_device *device, u32 offset, bool *high)
{
	struct cspmu *pmu = device->state;
	u32 i = offset / stride(device);

	*high = offset % stride(device);
	return i < COUNTERS && pmu->exists & BIT(i) ? &pmu->counter[i] : NULL;
}

/* The word at an offset of what is laid out as one word per counter; or NULL. */
static u32 *word_at(const struct lab_device *device, u32 offset)
{
	struct cspmu *pmu = device->state;
	u32 i = offset % 0x100 / 4;

	if (offset == PMCCFILTR && is_cycle_counter(device, CYCLES))
		return &pmu->cycle_filter;
	if (offset >= TGT_FIRST && offset < TGT_FIRST + sizeof(pmu->address))
		return product(device) == PRODUCT_PCIE_TGT ?
		       (u32 *)pmu->address + (offset - TGT_FIRST) / 4 : NULL;
	if (i >= COUNTERS || !(pmu->exists & BIT(i)))
		return NULL;
	switch (offset & ~0xffU) {
	case PMEVTYPER:
		return &pmu->type[i];
	case PMEVFILT2R:
		return &pmu->filter2[i];
	case PMEVFILTR:
		return &pmu->filter[i];
	}
	return NULL;
}

static u64 cspmu_read(struct lab_device *device, u32 offset, unsigned int bytes)
{
	struct cspmu *pmu = device->state;
	u64 *counter;
	u32 *word;
	bool high;

	if (offset < PMEVTYPER) {
		counter = counter_at(device, offset, &high);
		return counter ? *counter >> (high ? 32 : 0) : 0;
	}
	switch (offset) {
	case PMCNTENSET:
	case PMCNTENCLR:
		return pmu->enabled;
	case PMINTENSET:
	case PMINTENCLR:
		return pmu->interrupts;
	case PMOVSSET:
	case PMOVSCLR:
		return pmu->overflowed;
	case PMCR:
		return pmu->running ? PMCR_E : 0;
	case PMCFGR:
		return device->def.arg[1];
	case PMIIDR:
		return device->def.arg[0];
	}
	word = word_at(device, offset);
	return word ? *word : 0;
}

static void write_counter(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
	bool high;
	u64 *counter = counter_at(device, offset, &high);

	if (!counter)
		return;
	if (bytes == 4 && high)
		value = value << 32 | lower_32_bits(*counter);
	else if (bytes == 4)
		value |= *counter & GENMASK_ULL(63, 32);
	*counter = value & GENMASK_ULL(width(device) - 1, 0);
}

static void write_control(struct lab_device *device, u32 value)
{
	struct cspmu *pmu = device->state;
	unsigned int i;

	for (i = 0; i < COUNTERS; i++)
		if (value & (is_cycle_counter(device, i) ? PMCR_C : PMCR_P))
			pmu->counter[i] = 0;
	pmu->running = value & PMCR_E;
}

static void cspmu_write(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
	struct cspmu *pmu = device->state;
	u32 *word;

	if (offset < PMEVTYPER) {
		write_counter(device, offset, bytes, value);
		return;
	}
	switch (offset) {
	case PMCNTENSET:
		pmu->enabled |= value & pmu->exists;
		return;
	case PMCNTENCLR:
		pmu->enabled &= ~value;
		return;
	case PMINTENSET:
		pmu->interrupts |= value & pmu->exists;
		return;
	case PMINTENCLR:
		pmu->interrupts &= ~value;
		return;
	case PMOVSSET:
		pmu->overflowed |= value & pmu->exists;
		return;
	case PMOVSCLR:
		pmu->overflowed &= ~value;
		return;
	case PMCR:
		write_control(device, value);
		return;
	}
	word = word_at(device, offset);
	if (word)
		*word = value;
}

/* Whether the product has such an event, source and target. */
static bool move_exists(const struct lab_device *device, const struct lab_move *move)
{
	const u64 source = move->source, target = move->target;

	if (move->event == LAB_CYCLES)
		return device->def.arg[1] & PMCFGR_CC && !source && !target;
	switch (product(device)) {
	case PRODUCT_GRACE_PCIE:
		return move->event <= 0xd && source < 10 && !target;
	case PRODUCT_C2C0:
	case PRODUCT_C2C1:
		return move->event <= 0xd && source < 2 && !target;
	case PRODUCT_CNVLINK:
		return move->event <= 0xd && source < 4 && !target;
	case PRODUCT_UCF:
		return source < 3 && target < 4;
	case PRODUCT_T410_PCIE:
		return move->event <= 4 && !(source & ~0xffff07ULL) && target < 5;
	case PRODUCT_PCIE_TGT:
		return move->event <= 3 && source < 8;
	}
	return !source && !target;
}

/*
 * PCIe-TGT's filter2: bits 0..7 choose root ports, bits 8..15 address filters. Each bit chooses
 * traffic of its own, so a move passes by any of them: the driver leaves all ports out when it
 * programs an address alone.
 */
static bool target_passes(const struct cspmu *pmu, u32 filter2, u64 port, u64 address)
{
	unsigned int i;

	if (filter2 & BIT(port))
		return true;
	for (i = 0; i < TGT_SLOTS; i++) {
		const struct address_filter *slot = &pmu->address[i];
		u64 base = (u64)slot->base[1] << 32 | slot->base[0];
		u64 mask = (u64)slot->mask[1] << 32 | slot->mask[0];

		if (filter2 & BIT(8 + i) && slot->on && (address & mask) == (base & mask))
			return true;
	}
	return false;
}

/* Whether counter i's filters let the move pass. */
static bool filter_passes(const struct lab_device *device, unsigned int i,
			  const struct lab_move *move)
{
	const struct cspmu *pmu = device->state;
	const u32 filter = pmu->filter[i], filter2 = pmu->filter2[i];

	switch (product(device)) {
	case PRODUCT_GRACE_PCIE: /* source: root port */
	case PRODUCT_C2C0:       /* source: port */
	case PRODUCT_C2C1:
	case PRODUCT_CNVLINK: /* source: remote socket */
		return filter & BIT(move->source);
	case PRODUCT_UCF: /* source: non-CPU, CPU, remote; target: CPU's, GPU's, other, remote memory */
		return filter & BIT(move->source) && filter & BIT(8 + move->target);
	case PRODUCT_T410_PCIE: /* source: root port | bus/device/function << 8; target: filter2's */
		if (!(filter2 & BIT(move->target)))
			return false;
		if (filter & BIT(24))
			return FIELD_GET(GENMASK(23, 8), filter) == move->source >> 8;
		return filter & BIT(move->source & 7);
	case PRODUCT_PCIE_TGT: /* source: root port; target: address */
		return target_passes(pmu, filter2, move->source, move->target);
	}
	return true; /* SCF and what is not known has no filter */
}

static void advance(struct lab_device *device, unsigned int i, u64 amount)
{
	struct cspmu *pmu = device->state;
	u64 most = GENMASK_ULL(width(device) - 1, 0);
	bool wraps = amount > most - pmu->counter[i];

	pmu->counter[i] = (pmu->counter[i] + amount) & most;
	if (!wraps)
		return;
	pmu->overflowed |= BIT(i);
	if (pmu->interrupts & BIT(i))
		lab_raise(device);
}

/* Whether counter i is programmed for the move. */
static bool counts(const struct lab_device *device, unsigned int i, const struct lab_move *move)
{
	const struct cspmu *pmu = device->state;

	if (!(pmu->enabled & BIT(i)))
		return false;
	if (is_cycle_counter(device, i) || move->event == LAB_CYCLES)
		return is_cycle_counter(device, i) && move->event == LAB_CYCLES;
	return pmu->type[i] == move->event && filter_passes(device, i, move);
}

static int cspmu_move(struct lab_device *device, const struct lab_move *move)
{
	const struct cspmu *pmu = device->state;
	unsigned int i;

	if (!move_exists(device, move))
		return -EINVAL;
	if (!pmu->running)
		return 0;
	for (i = 0; i < COUNTERS; i++)
		if (counts(device, i, move))
			advance(device, i, move->amount);
	return 0;
}

const struct lab_kind lab_cspmu = {
	.id = LAB_CSPMU,
	.name = "cspmu",
	.define = cspmu_define,
	.attach = lab_apmt_attach,
	.detach = lab_apmt_detach,
	.read = cspmu_read,
	.write = cspmu_write,
	.move = cspmu_move,
};
