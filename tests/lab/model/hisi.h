/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The kernel's drivers of HiSilicon's uncore PMUs over the device model: to be included before them.
 *
 * Distributions build these drivers and their common part into the kernel, so each module brings the
 * common part with it and exports nothing. The guest's kernel is told to leave its own drivers out
 * (initcall_blacklist). Which die and cluster a CPU belongs to is asked of MPIDR_EL1, which an
 * emulated machine has otherwise; the model answers instead.
 */
#ifndef UNCORE_LAB_HISI_H
#define UNCORE_LAB_HISI_H

#include "io.h"

#include <linux/export.h>

#include <asm/cputype.h>

#define read_cpuid_mpidr() lab_hisi_mpidr()
#undef EXPORT_SYMBOL_NS_GPL
#define EXPORT_SYMBOL_NS_GPL(symbol, namespace)

/* The kernel leaves a module out too where its first function has the name of one of its own. */
#undef module_init
#define module_init(first) \
	int __init init_module(void) \
	{ \
		return first(); \
	}

#include <hisilicon/hisi_uncore_pmu.c>

#endif
