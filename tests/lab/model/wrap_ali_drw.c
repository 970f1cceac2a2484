// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's driver of Alibaba's DDR driveway over the device model. */
#include "io.h"

#include <alibaba_uncore_drw_pmu.c>
