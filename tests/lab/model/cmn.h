/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * LAB_CMN's mesh: its nodes and where their registers are. cmn.c counts, cmn_mesh.c builds the mesh
 * and answers the driver's discovery. Registers as arm-cmn.c (Linux 7.2) names them.
 */
#ifndef UNCORE_LAB_CMN_H
#define UNCORE_LAB_CMN_H

#include <linux/bits.h>

#include "model.h"

/* Every node has a region of 64 KiB; the PMU's registers are in its third page. */
#define CMN_REGION    0x10000
#define CMN_PMU       0x2000

#define CMN_DIMENSION 12 /* columns, and rows, at most */
#define CMN_CCLAS     8  /* arguments that name a CCLA */
#define CMN_LANES     4  /* local counters of a crosspoint */
#define CMN_COUNTERS  8  /* global counters of the DTC */

enum {
	CMN_TYPE_CFG  = 0x2,
	CMN_TYPE_DTC  = 0x3,
	CMN_TYPE_HNI  = 0x4,
	CMN_TYPE_HNF  = 0x5,
	CMN_TYPE_XP   = 0x6,
	CMN_TYPE_SBSX = 0x7,
	CMN_TYPE_RNI  = 0xa,
	CMN_TYPE_CCLA = 0x105,
};

/* The low bits of a node id: port (one bit) and device (two) on the crosspoint. */
#define CMN_PLACE     GENMASK(2, 0)
#define CMN_PORT(id)  ((id) >> 2 & 1)
#define CMN_DEVICE(id) ((id) & 3)
enum {
	CMN_PLACE_HNF  = 0, /* every crosspoint */
	CMN_PLACE_HND  = 1, /* (0,0): the HN-I and the DTC of one HN-D */
	CMN_PLACE_RNI  = 4, /* where there is no CCLA */
	CMN_PLACE_SBSX = 6, /* column 0 */
};

/* The local monitor of a crosspoint. */
struct cmn_dtm {
	u64 config;
	u16 lane[CMN_LANES];
};

struct cmn_node {
	u16 type;
	u16 id;
	u16 logical;
	u16 xp;       /* index of its crosspoint, its own if it is one */
	u16 children; /* of a crosspoint; they follow it */
	u64 select[2];/* at CMN_PMU and 8 bytes further */
	struct cmn_dtm dtm;
};

/* A counter that is read, and then written with the value it goes on from. */
struct cmn_counter {
	u64 value;
	u64 seen;
	bool was_seen;
};

struct cmn {
	unsigned int columns;
	unsigned int rows;
	unsigned int revision;
	u16 xps[CMN_DIMENSION * CMN_DIMENSION]; /* indices of nodes, by logical id */
	/* The DTC. */
	u32 control;
	u32 pmu_control;
	u32 overflow;
	struct cmn_counter counter[CMN_COUNTERS];
	struct cmn_counter cycles;
	unsigned int nodes;
	struct cmn_node node[]; /* the region of node i is i + 1 */
};

/* Builds the mesh of a definition; an error as ERR_PTR(). */
struct cmn *cmn_build(const struct lab_define *def);

/* The 64-bit register of region 0 or of a node that tells what there is; 0 for any other. */
u64 cmn_root_register(const struct cmn *cmn, u32 reg);
u64 cmn_node_register(const struct cmn *cmn, unsigned int index, u32 reg);

#endif
