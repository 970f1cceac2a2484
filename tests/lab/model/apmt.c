// SPDX-License-Identifier: GPL-2.0-only
/*
 * CoreSight PMUs as the firmware's APMT table would describe them (Arm DEN0117): the platform
 * device that drivers/acpi/arm64/apmt.c (Linux 7.2) makes of a node, made of a definition instead.
 * The emulated machine has no such table, and Linux takes none from an initrd.
 *
 * A PMU's CPUs are those of a processor container, whose UID is the device's number. The emulated
 * firmware has no containers either, so the driver's wrapper asks lab_in_container().
 */
#include <linux/acpi.h>
#include <linux/ioport.h>
#include <linux/platform_device.h>
#include <linux/sizes.h>

#include "model.h"

#define APMT_DRIVER "arm-cs-arch-pmu"

/* By device number; the driver keeps pointers to its node. */
static struct acpi_apmt_node nodes[LAB_DEVICES];
static struct platform_device *pdevs[LAB_DEVICES];

int lab_apmt_attach(struct lab_device *device)
{
	struct acpi_apmt_node *node = &nodes[device->number];
	struct resource res = DEFINE_RES_MEM(lab_base(device), SZ_4K);
	struct platform_device_info info = {
		.name = APMT_DRIVER,
		.id = PLATFORM_DEVID_AUTO,
		.res = &res,
		.num_res = 1,
		.data = &node,
		.size_data = sizeof(node),
	};
	struct platform_device *pdev;

	node->length = sizeof(*node);
	node->flags = ACPI_APMT_FLAGS_ATOMIC_SUPP | ACPI_APMT_FLAGS_AFFINITY_PROC_CONTAINER;
	node->type = device->def.arg[2];
	node->id = device->number;
	node->base_address0 = res.start;
	node->proc_affinity = device->number;
	if (node->type == ACPI_APMT_NODE_TYPE_ACPI) {
		memcpy(&node->inst_primary, device->def.text, sizeof(node->inst_primary));
		node->inst_secondary = device->def.arg[3];
	}

	pdev = platform_device_register_full(&info);
	if (IS_ERR(pdev))
		return PTR_ERR(pdev);
	pdevs[device->number] = pdev;
	return 0;
}

void lab_apmt_detach(struct lab_device *device)
{
	platform_device_unregister(pdevs[device->number]);
}
