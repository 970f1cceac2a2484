// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's driver of HiSilicon's DDR controller over the device model. */
#include "hisi.h"

#include <hisilicon/hisi_uncore_ddrc_pmu.c>
