// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's driver of HiSilicon's L3 cache over the device model. */
#include "hisi.h"

#include <hisilicon/hisi_uncore_l3c_pmu.c>
