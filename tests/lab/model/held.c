// SPDX-License-Identifier: GPL-2.0-only
/*
 * A device file for a PCI function of the model, as ib_uverbs makes one for that of a network card
 * (drivers/infiniband/core/uverbs_main.c, Linux 6.12 and 7.2): a region of character devices of that
 * name, and below the function a device of the class of that name, /dev/infiniband/uverbsN. A process
 * that has it open holds the function; the file does nothing else.
 */
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/module.h>
#include <linux/slab.h>

#include "held.h"

#define NAME "infiniband_verbs"

static int major;
static unsigned int nr_nodes;

static const struct file_operations held_fops = {
	.owner = THIS_MODULE,
};

static char *devnode(const struct device *dev, umode_t *mode)
{
	if (mode)
		*mode = 0666;
	return kasprintf(GFP_KERNEL, "infiniband/%s", dev_name(dev));
}

static const struct class held_class = {
	.name = NAME,
	.devnode = devnode,
};

int held_register(struct device *parent)
{
	struct device *node;
	int err;

	if (!major) {
		err = class_register(&held_class);
		if (err)
			return err;
		err = register_chrdev(0, NAME, &held_fops);
		if (err < 0) {
			class_unregister(&held_class);
			return err;
		}
		major = err;
	}
	node = device_create(&held_class, parent, MKDEV(major, nr_nodes), NULL, "uverbs%u", nr_nodes);
	if (IS_ERR(node))
		return PTR_ERR(node);
	nr_nodes++;
	return 0;
}

void held_unregister(void)
{
	if (!major)
		return;
	while (nr_nodes--)
		device_destroy(&held_class, MKDEV(major, nr_nodes));
	unregister_chrdev(major, NAME);
	class_unregister(&held_class);
}
