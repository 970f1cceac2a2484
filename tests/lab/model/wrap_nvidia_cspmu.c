// SPDX-License-Identifier: GPL-2.0-only
/* NVIDIA's part of the arm_cspmu driver over the device model. */
#include "io.h"

#include <arm_cspmu/nvidia_cspmu.c>
