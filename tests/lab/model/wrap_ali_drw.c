// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's driver of Alibaba's DDR driveway over the device model. */
#include "io.h"

/* It brings its own, and expects to come before the headers. */
#undef pr_fmt
#include <alibaba_uncore_drw_pmu.c>
