// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's arm_cspmu driver over the device model.
 *
 * Whether a CPU belongs to a PMU is asked of the firmware's processor containers, which an emulated
 * machine does not have; the model's definition answers instead. The one place in the driver that
 * asks has the CPU's number in scope as `cpu`.
 */
#include "io.h"

#undef acpi_dev_hid_uid_match
#define acpi_dev_hid_uid_match(adev, hid, uid) ((void)(adev), lab_in_container(cpu, uid))

#include <arm_cspmu/arm_cspmu.c>
