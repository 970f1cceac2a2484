// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_CMN's mesh and what its registers tell arm-cmn.c (Linux 7.2) that looks for it.
 *
 * Guarantees: the nodes are those of the definition, with node ids as hardware forms them: x, y,
 * port and device of the crosspoint; no two nodes with events share a place.
 */
#include <linux/bitfield.h>
#include <linux/bitops.h>
#include <linux/err.h>
#include <linux/mm.h>
#include <linux/overflow.h>

#include "cmn.h"

#define NODE_INFO      0x000
#define CHILD_INFO     0x080
#define CHILD_POINTERS 0x100
#define PERIPH_ID_01   0x008
#define PERIPH_ID_23   0x010
#define INFO_GLOBAL    0x900
#define INFO_GLOBAL_1  0x908
#define CONNECT_PORT0  0x008
#define CONNECT_PORT1  0x010

#define PART           0x43c /* CMN-700 */
#define REVISIONS      4

/* One virtual channel of each kind, one DTM in a crosspoint, no device isolation. */
#define GLOBAL         (FIELD_PREP(GENMASK_ULL(53, 52), 1) | FIELD_PREP(GENMASK_ULL(51, 50), 1))
#define GLOBAL_1       (FIELD_PREP(GENMASK_ULL(3, 2), 1) | FIELD_PREP(GENMASK_ULL(1, 0), 1))

/* Device types of the ports, as arm-cmn.c's map shows them. */
enum { CONNECT_RNI = 0x01, CONNECT_SBSX = 0x0d, CONNECT_HNF = 0x0e, CONNECT_CCG = 0x1e };

static u16 xp_id(const struct cmn *cmn, unsigned int x, unsigned int y)
{
	return (x << fls((cmn->columns - 1) | (cmn->rows - 1)) | y) << 3;
}

static u16 next_logical(const struct cmn *cmn, u16 type)
{
	unsigned int i;
	u16 count = 0;

	for (i = 0; i < cmn->nodes; i++)
		count += cmn->node[i].type == type;
	return count;
}

static void add_node(struct cmn *cmn, unsigned int xp, u16 type, u16 id)
{
	struct cmn_node *node = &cmn->node[cmn->nodes];

	node->logical = next_logical(cmn, type);
	node->type = type;
	node->id = id;
	node->xp = xp;
	cmn->nodes++;
	if (type != CMN_TYPE_XP)
		cmn->node[xp].children++;
}

/* The id of a crosspoint's CCLA, 0 if it has none. */
static u16 ccla_at(const struct lab_define *def, u16 xp)
{
	unsigned int i;

	for (i = 0; i < CMN_CCLAS; i++)
		if (def->arg[4 + i] && (def->arg[4 + i] & ~(u64)CMN_PLACE) == xp)
			return def->arg[4 + i];
	return 0;
}

static int add_crosspoint(struct cmn *cmn, const struct lab_define *def, unsigned int x,
			  unsigned int y)
{
	unsigned int xp = cmn->nodes;
	u16 id = xp_id(cmn, x, y);
	u16 ccla = ccla_at(def, id);

	if (ccla && ((ccla & CMN_PLACE) == CMN_PLACE_HNF ||
		     (!x && (ccla & CMN_PLACE) == CMN_PLACE_SBSX) ||
		     (!id && (ccla & CMN_PLACE) == CMN_PLACE_HND)))
		return -EINVAL;
	/* Crosspoints come in the order of their logical ids: by rows. */
	cmn->xps[y * cmn->columns + x] = xp;
	add_node(cmn, xp, CMN_TYPE_XP, id);
	add_node(cmn, xp, CMN_TYPE_HNF, id | CMN_PLACE_HNF);
	if (ccla)
		add_node(cmn, xp, CMN_TYPE_CCLA, ccla);
	else
		add_node(cmn, xp, CMN_TYPE_RNI, id | CMN_PLACE_RNI);
	if (!x)
		add_node(cmn, xp, CMN_TYPE_SBSX, id | CMN_PLACE_SBSX);
	if (!id) {
		add_node(cmn, xp, CMN_TYPE_HNI, id | CMN_PLACE_HND);
		add_node(cmn, xp, CMN_TYPE_DTC, id | CMN_PLACE_HND);
	}
	return 0;
}

/* The driver refuses a mesh of one crosspoint. */
static bool has_size(const struct lab_define *def)
{
	u64 columns = def->arg[0], rows = def->arg[1];

	return columns && columns <= CMN_DIMENSION && rows && rows <= CMN_DIMENSION &&
	       columns * rows > 1;
}

struct cmn *cmn_build(const struct lab_define *def)
{
	unsigned int x, y, i, wanted = 0;
	struct cmn *cmn;
	int err = 0;

	if (!has_size(def) || def->arg[2] >= REVISIONS)
		return ERR_PTR(-EINVAL);
	/* A crosspoint has up to four regions, (0,0) two more. */
	cmn = kvzalloc(struct_size(cmn, node, 4 * def->arg[0] * def->arg[1] + 2), GFP_KERNEL);
	if (!cmn)
		return ERR_PTR(-ENOMEM);
	cmn->columns = def->arg[0];
	cmn->rows = def->arg[1];
	cmn->revision = def->arg[2];
	for (y = 0; y < cmn->rows && !err; y++)
		for (x = 0; x < cmn->columns && !err; x++)
			err = add_crosspoint(cmn, def, x, y);
	for (i = 0; i < CMN_CCLAS; i++)
		wanted += !!def->arg[4 + i];
	/* One outside of the mesh, or two at one crosspoint. */
	if (!err && next_logical(cmn, CMN_TYPE_CCLA) != wanted)
		err = -EINVAL;
	if (!err)
		return cmn;
	kvfree(cmn);
	return ERR_PTR(err);
}

static u64 node_info(u16 type, u16 id, u16 logical)
{
	return type | (u64)id << 16 | (u64)logical << 32;
}

static u64 child_info(unsigned int count)
{
	return count | CHILD_POINTERS << 16;
}

static u64 region_of(unsigned int index)
{
	return (index + 1) * CMN_REGION;
}

u64 cmn_root_register(const struct cmn *cmn, u32 reg)
{
	unsigned int xps = cmn->columns * cmn->rows;

	if (reg >= CHILD_POINTERS && reg < CHILD_POINTERS + 8 * xps)
		return region_of(cmn->xps[(reg - CHILD_POINTERS) / 8]);
	switch (reg) {
	case NODE_INFO:
		return node_info(CMN_TYPE_CFG, 0, 0);
	case PERIPH_ID_01:
		return (PART & 0xff) | (u64)(PART >> 8) << 32;
	case PERIPH_ID_23:
		return cmn->revision << 4;
	case CHILD_INFO:
		return child_info(xps);
	case INFO_GLOBAL:
		return GLOBAL;
	case INFO_GLOBAL_1:
		return GLOBAL_1;
	}
	return 0;
}

/* What a crosspoint says is at one of its ports. */
static u64 connected(const struct cmn *cmn, unsigned int xp, unsigned int port)
{
	unsigned int i;

	for (i = xp + 1; i <= xp + cmn->node[xp].children; i++) {
		if (CMN_PORT(cmn->node[i].id) != port)
			continue;
		switch (cmn->node[i].type) {
		case CMN_TYPE_HNF:
			return CONNECT_HNF;
		case CMN_TYPE_RNI:
			return CONNECT_RNI;
		case CMN_TYPE_CCLA:
			return CONNECT_CCG;
		case CMN_TYPE_SBSX:
			return CONNECT_SBSX;
		}
	}
	return 0;
}

u64 cmn_node_register(const struct cmn *cmn, unsigned int index, u32 reg)
{
	const struct cmn_node *node = &cmn->node[index];

	if (reg == NODE_INFO)
		return node_info(node->type, node->id, node->logical);
	if (node->type != CMN_TYPE_XP)
		return 0;
	if (reg >= CHILD_POINTERS && reg < CHILD_POINTERS + 8 * node->children)
		return region_of(index + 1 + (reg - CHILD_POINTERS) / 8);
	switch (reg) {
	case CHILD_INFO:
		return child_info(node->children);
	case CONNECT_PORT0:
		return connected(cmn, index, 0);
	case CONNECT_PORT1:
		return connected(cmn, index, 1);
	}
	return 0;
}
