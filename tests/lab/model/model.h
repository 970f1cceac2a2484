/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The device model: registers that behave as the hardware's do, behind unmodified drivers.
 *
 * The drivers are compiled with io.h, which sends every access to a register here. A kind is one
 * file with one struct lab_kind and one line in kinds.h.
 */
#ifndef UNCORE_LAB_MODEL_H
#define UNCORE_LAB_MODEL_H

#include <linux/spinlock.h>
#include <linux/types.h>

#include "abi.h"

struct lab_device;

struct lab_kind {
	enum lab_kind_id id;
	const char *name;
	/* Checks the definition and allocates device->state (kvzalloc; freed by the core). */
	int (*define)(struct lab_device *device);
	/* Makes the kernel see it, where its firmware description does not; may be NULL. May sleep. */
	int (*attach)(struct lab_device *device);
	/* Undoes attach; may be NULL. */
	void (*detach)(struct lab_device *device);
	/* Registers, at an offset from the device's window, of 4 or 8 bytes; under device->lock. */
	u64 (*read)(struct lab_device *device, u32 offset, unsigned int bytes);
	void (*write)(struct lab_device *device, u32 offset, unsigned int bytes, u64 value);
	/* Counts a move where counters are enabled and programmed for it; under device->lock.
	 * -EINVAL: the hardware has no such event, source or target. */
	int (*move)(struct lab_device *device, const struct lab_move *move);
};

struct lab_device {
	const struct lab_kind *kind;
	struct lab_define def;
	unsigned int number;
	raw_spinlock_t lock; /* taken with interrupts off: counters are read in timer interrupts */
	void *state;
	int irq;             /* the Linux number its driver asked for, 0: none */
};

/* Physical address of its registers. */
static inline u64 lab_base(const struct lab_device *device)
{
	return LAB_WINDOW + device->number * LAB_SLOT;
}

/* Raises the device's interrupt, if its driver asked for one; under device->lock. */
void lab_raise(struct lab_device *device);

/* Whether a CPU is in the processor container of device `uid`; see apmt.c. */
bool lab_in_container(unsigned int cpu, u32 uid);

/* The value of MPIDR_EL1 of this CPU on a Kunpeng; see hisi.c. */
u64 lab_hisi_mpidr(void);

/* Makes the kernel see a device as firmware's APMT table would, and not; for kinds. May sleep. */
int lab_apmt_attach(struct lab_device *device);
void lab_apmt_detach(struct lab_device *device);

/* What io.h calls. The pointer is the physical address: nothing is mapped. */
u64 lab_read(const volatile void __iomem *addr, unsigned int bytes);
void lab_write(volatile void __iomem *addr, unsigned int bytes, u64 value);
void lab_request_irq(const void __iomem *base, int irq); /* what the driver got for its device */

#endif
