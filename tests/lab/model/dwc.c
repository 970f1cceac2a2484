// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_DWC: a PCI domain of its own with one root port of a Synopsys DesignWare controller, and the
 * RAS DES capability in its configuration space that dwc_pcie_pmu.c (Linux 7.2) counts with.
 *
 * arg[0] is the PCI domain, arg[1] the link's width in lanes (1..16), arg[2] the root port's devfn
 * on bus 0 (function 0), arg[3] the number of endpoints below it (0 or 1). A move's event is the
 * driver's eventid: 0x00..0x09 and 0x20..0x23 are time-based, 0x600..0x606 and 0x700..0x717 belong
 * to a lane, which is the source; the source of others and the target are 0. Amounts are what the
 * hardware counts: units of 16 bytes for 0x20..0x23.
 *
 * Guarantees: the one time-based counter (64 bits) counts the event its control register reports,
 * from the start of the measurement, which clears it, to its stop; lane counters (32 bits) are
 * switched, read and cleared through the select register, each for itself.
 *
 * One difference: counts between a lane's read and the clearing that follows it are kept. Hardware
 * loses them, and the truth would then be a range instead of a number.
 */
#include <linux/bitfield.h>
#include <linux/bits.h>
#include <linux/mm.h>
#include <linux/nodemask.h>
#include <linux/pci.h>
#include <linux/pci-ecam.h>

#include "held.h"
#include "model.h"

#define LANES            16
#define LANE_EVENTS      (0x07 + 0x18) /* groups 6 and 7 */
#define TIME_EVENT_TX    0x20
#define TIME_EVENT_LAST  0x23
#define TIME_EVENT_LTSSM 0x09

/* Configuration space: the header, the PCIe capability, the vendor-specific one. */
#define CAP              0x40
#define VSEC             0x100
#define SPACE            0x120
#define EVENT_CTL        (VSEC + 0x08)
#define EVENT_DATA       (VSEC + 0x0c)
#define TIME_CTL         (VSEC + 0x10)
#define TIME_LOW         (VSEC + 0x14)
#define TIME_HIGH        (VSEC + 0x18)
#define VSEC_SIZE        0x1c

#define EVENT_SEL        GENMASK(27, 16)
#define EVENT_LANE       GENMASK(11, 8)
#define EVENT_IS_ON      BIT(7)
#define EVENT_SWITCH     GENMASK(4, 2)
#define EVENT_CLEAR      GENMASK(1, 0)
enum { SWITCH_OFF = 1, SWITCH_ON = 3, SWITCH_ALL = 4, CLEAR_ONE = 1, CLEAR_ALL = 3 };

#define TIME_START       BIT(0)
#define TIME_DURATION    GENMASK(15, 8) /* 0: until it is stopped */
#define TIME_REPORT      GENMASK(31, 24)

#define RAS_DES          (VSEC_SIZE << 20 | 4 << 16 | 2) /* include/linux/pcie-dwc.h: id 2, rev 4 */
#define LINK_SPEED       5 /* 32 GT/s */

struct lane_counter {
	u32 value;
	bool on;
};

struct dwc {
	/* Where arm64's pcibios_root_bridge_prepare() looks for an ACPI device: it finds none. */
	struct pci_config_window window;
	struct lab_device *device;
	struct pci_host_bridge *bridge;
	struct resource buses;
	u32 port[SPACE / 4];
	u32 endpoint[SPACE / 4];
	struct lane_counter lane[LANES * LANE_EVENTS];
	u32 select;
	u32 seen;       /* what the last read of the selected lane's data showed */
	bool was_seen;
	u32 time_ctl;
	u64 time_data;
};

/* Bits of the header and of the PCIe capability that keep what is written. */
static u32 writable(const struct dwc *dwc, const u32 *space, unsigned int reg)
{
	bool port = space == dwc->port;

	switch (reg) {
	case PCI_COMMAND:
	case CAP + PCI_EXP_DEVCTL:
	case CAP + PCI_EXP_LNKCTL:
		return GENMASK(15, 0);
	case PCI_CACHE_LINE_SIZE:
		return GENMASK(7, 0);
	case PCI_PRIMARY_BUS:
		return port ? GENMASK(31, 0) : 0;
	case PCI_MEMORY_BASE:
		return port ? 0xfff0fff0 : 0;
	case PCI_INTERRUPT_LINE:
		return port ? 0xffff00ff : 0xff;
	case CAP + PCI_EXP_RTCTL:
		return port ? GENMASK(15, 0) : 0;
	}
	return 0;
}

static void fill_space(const struct dwc *dwc, u32 *space, unsigned int width)
{
	bool port = space == dwc->port;
	u32 type = port ? PCI_EXP_TYPE_ROOT_PORT : PCI_EXP_TYPE_ENDPOINT;
	u32 class = port ? PCI_CLASS_BRIDGE_PCI_NORMAL : PCI_CLASS_NETWORK_ETHERNET << 8;
	u32 link = LINK_SPEED | width << 4;

	space[PCI_VENDOR_ID / 4] = (port ? 0x8000 : 0x8001) << 16 | PCI_VENDOR_ID_ALIBABA;
	space[PCI_COMMAND / 4] = PCI_STATUS_CAP_LIST << 16;
	space[PCI_CLASS_REVISION / 4] = class << 8 | 1;
	space[PCI_CACHE_LINE_SIZE / 4] = (port ? PCI_HEADER_TYPE_BRIDGE : PCI_HEADER_TYPE_NORMAL)
					 << 16;
	space[PCI_CAPABILITY_LIST / 4] = CAP;
	space[CAP / 4] = (type << 4 | 2) << 16 | PCI_CAP_ID_EXP;
	space[(CAP + PCI_EXP_DEVCAP) / 4] = PCI_EXP_DEVCAP_RBER;
	space[(CAP + PCI_EXP_LNKCAP) / 4] = link;
	space[(CAP + PCI_EXP_LNKCTL) / 4] = link << 16;
	if (!port)
		return;
	space[PCI_MEMORY_BASE / 4] = 0x0000fff0; /* base above limit: no window */
	space[VSEC / 4] = 1 << 16 | PCI_EXT_CAP_ID_VNDR;
	space[(VSEC + PCI_VNDR_HEADER) / 4] = RAS_DES;
}

static int dwc_define(struct lab_device *device)
{
	const u64 *arg = device->def.arg;
	struct dwc *dwc;

	if (device->def.node >= MAX_NUMNODES || !node_online(device->def.node))
		return -EINVAL;
	if (arg[0] > U16_MAX || !arg[1] || arg[1] > LANES || arg[3] > 1)
		return -EINVAL;
	/* The kernel looks for other functions only if function 0 exists. */
	if (arg[2] > U8_MAX || PCI_FUNC(arg[2]))
		return -EINVAL;
	dwc = kvzalloc(sizeof(*dwc), GFP_KERNEL);
	if (!dwc)
		return -ENOMEM;
	device->state = dwc;
	dwc->device = device;
	fill_space(dwc, dwc->port, arg[1]);
	fill_space(dwc, dwc->endpoint, arg[1]);
	return 0;
}

/* The counter of a lane's event, NULL if it does not exist. */
static struct lane_counter *lane_counter(struct dwc *dwc, u32 event, u64 lane)
{
	if (event >= 0x600 && event <= 0x606)
		event -= 0x600;
	else if (event >= 0x700 && event <= 0x717)
		event -= 0x700 - 0x07;
	else
		return NULL;
	return lane < dwc->device->def.arg[1] ? &dwc->lane[lane * LANE_EVENTS + event] : NULL;
}

static struct lane_counter *selected(struct dwc *dwc)
{
	return lane_counter(dwc, FIELD_GET(EVENT_SEL, dwc->select),
			    FIELD_GET(EVENT_LANE, dwc->select));
}

/* Carries out a command for one counter. */
static void command(struct lane_counter *counter, u32 action, u32 clear, u32 remaining)
{
	if (action == SWITCH_OFF || action == SWITCH_ON)
		counter->on = action == SWITCH_ON;
	if (clear)
		counter->value = remaining;
}

static void write_event_ctl(struct dwc *dwc, u32 value)
{
	u32 action = FIELD_GET(EVENT_SWITCH, value), clear = FIELD_GET(EVENT_CLEAR, value);
	u32 which = value & (EVENT_SEL | EVENT_LANE);
	struct lane_counter *counter;
	unsigned int i;

	if (dwc->select != which)
		dwc->was_seen = false;
	dwc->select = which;
	for (i = 0; i < ARRAY_SIZE(dwc->lane); i++)
		command(&dwc->lane[i], action & SWITCH_ALL ? action - SWITCH_ALL : 0,
			clear == CLEAR_ALL, 0);
	counter = selected(dwc);
	if (counter)
		command(counter, action, clear == CLEAR_ONE,
			dwc->was_seen ? counter->value - dwc->seen : 0);
	if (clear & CLEAR_ONE)
		dwc->was_seen = false;
}

static void write_time_ctl(struct dwc *dwc, u32 value)
{
	if (value & TIME_START && !(dwc->time_ctl & TIME_START))
		dwc->time_data = 0;
	dwc->time_ctl = value & (TIME_START | TIME_DURATION | TIME_REPORT);
}

static u32 read_event_data(struct dwc *dwc)
{
	const struct lane_counter *counter = selected(dwc);

	if (!counter)
		return 0;
	dwc->seen = counter->value;
	dwc->was_seen = true;
	return counter->value;
}

static u32 read_event_ctl(struct dwc *dwc)
{
	const struct lane_counter *counter = selected(dwc);

	return dwc->select | (counter && counter->on ? EVENT_IS_ON : 0);
}

static u32 read_word(struct dwc *dwc, const u32 *space, unsigned int reg)
{
	if (reg >= SPACE)
		return 0;
	if (space == dwc->port) {
		switch (reg) {
		case EVENT_CTL:
			return read_event_ctl(dwc);
		case EVENT_DATA:
			return read_event_data(dwc);
		case TIME_CTL:
			return dwc->time_ctl;
		case TIME_LOW:
			return lower_32_bits(dwc->time_data);
		case TIME_HIGH:
			return upper_32_bits(dwc->time_data);
		}
	}
	return space[reg / 4];
}

/* `bytes` has a bit set for every bit of the word that is written. */
static void write_word(struct dwc *dwc, u32 *space, unsigned int reg, u32 value, u32 bytes)
{
	if (reg >= SPACE)
		return;
	if (space == dwc->port && reg == EVENT_CTL)
		return write_event_ctl(dwc, value);
	if (space == dwc->port && reg == TIME_CTL)
		return write_time_ctl(dwc, value);
	bytes &= writable(dwc, space, reg);
	space[reg / 4] = (space[reg / 4] & ~bytes) | (value & bytes);
}

/* The function at an address, NULL if nothing answers there. */
static u32 *function(struct dwc *dwc, struct pci_bus *bus, unsigned int devfn)
{
	u32 secondary = dwc->port[PCI_PRIMARY_BUS / 4] >> 8 & 0xff;

	if (pci_is_root_bus(bus))
		return devfn == dwc->device->def.arg[2] ? dwc->port : NULL;
	return bus->number == secondary && !devfn && dwc->device->def.arg[3] ? dwc->endpoint : NULL;
}

static int read_config(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct dwc *dwc = container_of(bus->sysdata, struct dwc, window);
	unsigned long flags;
	u32 *space;
	u32 word;

	raw_spin_lock_irqsave(&dwc->device->lock, flags);
	space = function(dwc, bus, devfn);
	word = space ? read_word(dwc, space, where & ~3) : ~0;
	raw_spin_unlock_irqrestore(&dwc->device->lock, flags);
	*value = word >> (8 * (where & 3)) & GENMASK(8 * size - 1, 0);
	return space ? PCIBIOS_SUCCESSFUL : PCIBIOS_DEVICE_NOT_FOUND;
}

static int write_config(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct dwc *dwc = container_of(bus->sysdata, struct dwc, window);
	unsigned int shift = 8 * (where & 3);
	unsigned long flags;
	u32 *space;

	raw_spin_lock_irqsave(&dwc->device->lock, flags);
	space = function(dwc, bus, devfn);
	if (space)
		write_word(dwc, space, where & ~3, value << shift,
			   GENMASK(8 * size - 1, 0) << shift);
	raw_spin_unlock_irqrestore(&dwc->device->lock, flags);
	return space ? PCIBIOS_SUCCESSFUL : PCIBIOS_DEVICE_NOT_FOUND;
}

/* The devices take their NUMA node from the bus; for want of an ACPI device it has none yet. */
static int add_bus(struct pci_bus *bus)
{
	struct dwc *dwc = container_of(bus->sysdata, struct dwc, window);

	if (pci_is_root_bus(bus))
		set_dev_node(&bus->dev, dwc->device->def.node);
	return 0;
}

static struct pci_ops dwc_ops = {
	.add_bus = add_bus,
	.read = read_config,
	.write = write_config,
};

/* A process can hold an endpoint: it has a file. */
static void add_files(struct pci_bus *bus)
{
	struct pci_dev *port, *endpoint;
	int err;

	list_for_each_entry(port, &bus->devices, bus_list) {
		if (!port->subordinate)
			continue;
		list_for_each_entry(endpoint, &port->subordinate->devices, bus_list) {
			err = held_register(&endpoint->dev);
			if (err)
				pci_warn(endpoint, "it gets no file: %d\n", err);
		}
	}
}

static int dwc_attach(struct lab_device *device)
{
	struct dwc *dwc = device->state;
	struct pci_host_bridge *bridge;
	int err;

	bridge = pci_alloc_host_bridge(0);
	if (!bridge)
		return -ENOMEM;
	bridge->domain_nr = device->def.arg[0];
	bridge->sysdata = &dwc->window;
	bridge->ops = &dwc_ops;
	/* There is neither firmware nor an interrupt that the kernel's port services could use. */
	bridge->native_aer = 0;
	bridge->native_pme = 0;
	bridge->native_pcie_hotplug = 0;
	dwc->buses = (struct resource)DEFINE_RES_NAMED(0, 2, "uncore-model", IORESOURCE_BUS);
	pci_add_resource(&bridge->windows, &dwc->buses);

	pci_lock_rescan_remove();
	err = pci_scan_root_bus_bridge(bridge);
	if (!err) {
		dwc->bridge = bridge;
		pci_bus_add_devices(bridge->bus);
		add_files(bridge->bus);
	}
	pci_unlock_rescan_remove();
	if (err)
		pci_free_host_bridge(bridge);
	return err;
}

static void dwc_detach(struct lab_device *device)
{
	struct dwc *dwc = device->state;

	if (!dwc->bridge)
		return;
	pci_lock_rescan_remove();
	pci_stop_root_bus(dwc->bridge->bus);
	pci_remove_root_bus(dwc->bridge->bus);
	pci_unlock_rescan_remove();
	dwc->bridge = NULL;
}

static int dwc_move(struct lab_device *device, const struct lab_move *move)
{
	struct dwc *dwc = device->state;
	struct lane_counter *counter = lane_counter(dwc, move->event, move->source);

	if (move->target)
		return -EINVAL;
	if (counter) {
		if (move->amount > U32_MAX)
			return -EINVAL;
		if (counter->on)
			counter->value += move->amount;
		return 0;
	}
	if (move->source || move->event > TIME_EVENT_LAST ||
	    (move->event > TIME_EVENT_LTSSM && move->event < TIME_EVENT_TX))
		return -EINVAL;
	if (dwc->time_ctl & TIME_START && !FIELD_GET(TIME_DURATION, dwc->time_ctl) &&
	    FIELD_GET(TIME_REPORT, dwc->time_ctl) == move->event)
		dwc->time_data += move->amount;
	return 0;
}

/* The registers are in configuration space: its slot of the window is empty. */
static u64 dwc_read(struct lab_device *device, u32 offset, unsigned int bytes)
{
	return ~0ULL;
}

static void dwc_write(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
}

const struct lab_kind lab_dwc = {
	.id = LAB_DWC,
	.name = "dwc",
	.define = dwc_define,
	.attach = dwc_attach,
	.detach = dwc_detach,
	.read = dwc_read,
	.write = dwc_write,
	.move = dwc_move,
};
