/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The interface between user space and the device model, /dev/uncore-model.
 *
 * ioctl(LAB_DEFINE) adds a device, ioctl(LAB_ATTACH) makes the kernel see all of them,
 * write() moves traffic, read() takes the truth log.
 * Every structure has fixed-width fields without padding; tests/lab/guest mirrors them.
 */
#ifndef UNCORE_LAB_ABI_H
#define UNCORE_LAB_ABI_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Registers of device N begin at LAB_WINDOW + N * LAB_SLOT: no RAM and no device of the guest. */
#define LAB_WINDOW 0x2000000000ULL
#define LAB_SLOT   0x4000000ULL

#define LAB_DEVICES 64
#define LAB_CPUS    64

/* Kinds of devices. The head of each kind's file describes its arguments. */
enum lab_kind_id {
	LAB_CSPMU = 1, /* cspmu.c */
	LAB_CMEM  = 2, /* cmem.c */
	LAB_C2C   = 3, /* c2c.c */
	LAB_CMN   = 4, /* cmn.c */
	LAB_DWC   = 5, /* dwc.c */
	LAB_DRW   = 6, /* drw.c */
	LAB_CPU   = 7, /* cpu.c */
	LAB_HISI  = 8, /* hisi.c */
};

struct lab_define {
	__u32 kind;
	__u32 node;    /* NUMA node it belongs to */
	__u64 cpus;    /* mask of the CPUs near it */
	__u64 arg[12]; /* by kind */
	char  text[16];/* by kind */
};

/* One portion of traffic. EINVAL if its fields are invalid for the device. */
struct lab_move {
	__u32 device; /* number of the device, in the order of definition */
	__u32 event;  /* the hardware's event number, by kind */
	__u64 source; /* source of the traffic, by kind */
	__u64 target; /* target of the traffic, by kind */
	__u64 amount; /* counts, in the hardware's own unit */
};

/* One move as it happened; it was counted by the counters that were programmed for it. */
struct lab_truth {
	__u64 time_ns; /* CLOCK_MONOTONIC */
	__u64 cgroup;  /* v2 id of the cgroup of the task that moved it */
	__u32 pid;     /* process */
	__u32 tid;     /* thread */
	struct lab_move move;
};

/* The event of a LAB_CSPMU's cycle counter, which has no number in the hardware. */
#define LAB_CYCLES 0xffffffffU

#define LAB_MAGIC 0xb7
#define LAB_DEFINE _IOWR(LAB_MAGIC, 1, struct lab_define) /* returns the device's number */
#define LAB_ATTACH _IO(LAB_MAGIC, 2)
#define LAB_FORGET _IO(LAB_MAGIC, 3) /* empties the truth log */
/* From now on a kernel thread makes the moves that are written to this file, on the writer's CPU, after
 * so many microseconds of work; the writer waits. */
#define LAB_DELEGATE _IOW(LAB_MAGIC, 4, __u32)

#endif
