// SPDX-License-Identifier: GPL-2.0-only
/* The kernel's driver of Arm's mesh interconnects over the device model. */
#include "io.h"

#include <arm-cmn.c>
