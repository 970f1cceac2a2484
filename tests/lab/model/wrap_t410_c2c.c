// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's driver of T410's C2C links over the device model. */
#include "io.h"

#include <nvidia_t410_c2c_pmu.c>
