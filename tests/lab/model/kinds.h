/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Every kind of device the model knows: one line each, in the order of enum lab_kind_id.
 */
#ifndef UNCORE_LAB_KINDS_H
#define UNCORE_LAB_KINDS_H

#include "model.h"

extern const struct lab_kind lab_cspmu;
extern const struct lab_kind lab_cmem;
extern const struct lab_kind lab_c2c;
extern const struct lab_kind lab_cmn;
extern const struct lab_kind lab_dwc;
extern const struct lab_kind lab_drw;
extern const struct lab_kind lab_cpu;
extern const struct lab_kind lab_hisi;

static const struct lab_kind *const lab_kinds[] = {
	&lab_cspmu,
	&lab_cmem,
	&lab_c2c,
	&lab_cmn,
	&lab_dwc,
	&lab_drw,
	&lab_cpu,
	&lab_hisi,
};

#endif
