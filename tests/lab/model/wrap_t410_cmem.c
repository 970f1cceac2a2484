// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's driver of T410's CPU memory latency over the device model. */
#include "io.h"

#include <nvidia_t410_cmem_latency_pmu.c>
