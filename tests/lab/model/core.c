// SPDX-License-Identifier: GPL-2.0-only
/*
 * The device model's core: /dev/uncore-model, the devices, and the way of a register access and of
 * a move to the kind of device concerned.
 *
 * Guarantees: a device's registers and its moves exclude each other; a move is counted and logged,
 * or neither; its time lies within the moment in which no register of its device can be read.
 */
#define pr_fmt(fmt) "uncore-model: " fmt

#include <linux/delay.h>
#include <linux/fs.h>
#include <linux/interrupt.h>
#include <linux/irq.h>
#include <linux/ktime.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/workqueue.h>

#include "held.h"
#include "kinds.h"
#include "truth.h"

#define MOST_WORK_US 100000

/* Devices exist until the module is unloaded, so that pointers to them stay valid. */
static struct lab_device *devices[LAB_DEVICES];
static unsigned int nr_devices;
static unsigned int nr_attached;
static struct workqueue_struct *workers;
static DEFINE_MUTEX(defining); /* the numbers, and who adds to the table */

static struct lab_device *device_of(u32 number)
{
	/* Pairs with define_device(). */
	return number < LAB_DEVICES ? smp_load_acquire(&devices[number]) : NULL;
}

static struct lab_device *device_at(const volatile void __iomem *addr, u32 *offset)
{
	u64 at = (u64)addr - LAB_WINDOW;

	*offset = at % LAB_SLOT;
	return at / LAB_SLOT < LAB_DEVICES ? device_of(at / LAB_SLOT) : NULL;
}

u64 lab_read(const volatile void __iomem *addr, unsigned int bytes)
{
	struct lab_device *device;
	unsigned long flags;
	u32 offset;
	u64 value;

	device = device_at(addr, &offset);
	if (!device) {
		pr_warn_ratelimited("read of %u bytes at %#llx: no device\n", bytes, (u64)addr);
		return ~0ULL;
	}
	raw_spin_lock_irqsave(&device->lock, flags);
	value = device->kind->read(device, offset, bytes);
	raw_spin_unlock_irqrestore(&device->lock, flags);
	return value;
}
EXPORT_SYMBOL_GPL(lab_read);

void lab_write(volatile void __iomem *addr, unsigned int bytes, u64 value)
{
	struct lab_device *device;
	unsigned long flags;
	u32 offset;

	device = device_at(addr, &offset);
	if (!device) {
		pr_warn_ratelimited("write of %u bytes at %#llx: no device\n", bytes, (u64)addr);
		return;
	}
	raw_spin_lock_irqsave(&device->lock, flags);
	device->kind->write(device, offset, bytes, value);
	raw_spin_unlock_irqrestore(&device->lock, flags);
}
EXPORT_SYMBOL_GPL(lab_write);

void lab_request_irq(const void __iomem *base, int irq)
{
	struct lab_device *device;
	u32 offset;

	device = device_at(base, &offset);
	if (device)
		WRITE_ONCE(device->irq, irq);
}
EXPORT_SYMBOL_GPL(lab_request_irq);

/*
 * Makes the interrupt pending in the interrupt controller, which delivers it to the CPU the driver
 * chose, as it would a wire that was pulsed.
 */
void lab_raise(struct lab_device *device)
{
	int irq = READ_ONCE(device->irq);

	if (irq > 0 && irq_set_irqchip_state(irq, IRQCHIP_STATE_PENDING, true))
		pr_warn_ratelimited("device %u: interrupt %d cannot be raised\n", device->number,
				    irq);
}

bool lab_in_container(unsigned int cpu, u32 uid)
{
	const struct lab_device *device = device_of(uid);

	return device && cpu < LAB_CPUS && device->def.cpus & BIT_ULL(cpu);
}
EXPORT_SYMBOL_GPL(lab_in_container);

static const struct lab_kind *kind_of(u32 id)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(lab_kinds); i++)
		if (lab_kinds[i]->id == id)
			return lab_kinds[i];
	return NULL;
}

static void free_device(struct lab_device *device)
{
	kvfree(device->state);
	kfree(device);
}

/* Returns the device's number. */
static int define_device(const struct lab_define __user *from)
{
	struct lab_device *device;
	int err = -ENOSPC;

	if (nr_devices == LAB_DEVICES)
		return err;
	device = kzalloc(sizeof(*device), GFP_KERNEL);
	if (!device)
		return -ENOMEM;
	raw_spin_lock_init(&device->lock);
	device->number = nr_devices;
	err = -EFAULT;
	if (copy_from_user(&device->def, from, sizeof(device->def)))
		goto fail;
	err = -EINVAL;
	device->kind = kind_of(device->def.kind);
	if (!device->kind) {
		pr_warn("device %u: no kind %u\n", device->number, device->def.kind);
		goto fail;
	}
	err = device->kind->define(device);
	if (err) {
		pr_warn("device %u: definition of %s refused: %d\n", device->number,
			device->kind->name, err);
		goto fail;
	}
	/* Pairs with device_of(): who sees the device sees all of it. */
	smp_store_release(&devices[nr_devices], device);
	return nr_devices++;
fail:
	free_device(device);
	return err;
}

/* Attaches what was defined since the last time. */
static int attach_devices(void)
{
	for (; nr_attached < nr_devices; nr_attached++) {
		struct lab_device *device = devices[nr_attached];
		int err = device->kind->attach ? device->kind->attach(device) : 0;

		if (err) {
			pr_warn("device %u: %s cannot be attached: %d\n", device->number,
				device->kind->name, err);
			return err;
		}
	}
	return 0;
}

/* The misc driver leaves its own pointer in the file. */
static int model_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;
	return 0;
}

/* An open file keeps the microseconds of a kernel thread's work for each of its moves. */
static int delegate(struct file *file, const u32 __user *from)
{
	u32 us;

	if (get_user(us, from))
		return -EFAULT;
	if (us > MOST_WORK_US)
		return -EINVAL;
	file->private_data = (void *)(unsigned long)us;
	return 0;
}

static long model_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	int ret;

	switch (cmd) {
	case LAB_DEFINE:
		mutex_lock(&defining);
		ret = define_device((const struct lab_define __user *)arg);
		mutex_unlock(&defining);
		return ret;
	case LAB_ATTACH:
		mutex_lock(&defining);
		ret = attach_devices();
		mutex_unlock(&defining);
		return ret;
	case LAB_FORGET:
		lab_truth_forget();
		return 0;
	case LAB_DELEGATE:
		return delegate(file, (const u32 __user *)arg);
	}
	return -ENOTTY;
}

/* Counts and logs one move, or does neither. */
static int carry_out(const struct lab_move *move)
{
	struct lab_device *device = device_of(move->device);
	unsigned long flags;
	u64 time_ns;
	int err;

	err = lab_truth_promise();
	if (err)
		return err;
	err = -EINVAL;
	if (device) {
		raw_spin_lock_irqsave(&device->lock, flags);
		time_ns = ktime_get_ns();
		err = device->kind->move(device, move);
		raw_spin_unlock_irqrestore(&device->lock, flags);
	}
	if (err) {
		lab_truth_release();
		pr_warn_ratelimited("device %u (%s): move of event %#x refused: %d\n",
				    move->device, device ? device->kind->name : "not defined",
				    move->event, err);
		return err;
	}
	lab_truth_append(time_ns, move);
	return 0;
}

struct delegated {
	struct work_struct work;
	const struct lab_move *move;
	unsigned int us;
	int err;
};

static void work_and_move(struct work_struct *work)
{
	struct delegated *it = container_of(work, struct delegated, work);

	/* In small steps: the time of other tasks that run in between does not count. */
	while (it->us--) {
		udelay(1);
		cond_resched();
	}
	it->err = carry_out(it->move);
}

/* Has a kernel thread on this CPU carry out a move. */
static int hand_over(const struct lab_move *move, unsigned int us)
{
	struct delegated it = { .move = move, .us = us };

	INIT_WORK_ONSTACK(&it.work, work_and_move);
	queue_work_on(raw_smp_processor_id(), workers, &it.work);
	flush_work(&it.work);
	destroy_work_on_stack(&it.work);
	return it.err;
}

/* As any write: the error of the first move, or the bytes of those that went before one. */
static ssize_t model_write(struct file *file, const char __user *from, size_t bytes, loff_t *pos)
{
	unsigned int us = (unsigned long)file->private_data;
	struct lab_move move;
	size_t done;
	int err;

	if (bytes % sizeof(move))
		return -EINVAL;
	for (done = 0; done < bytes; done += sizeof(move)) {
		err = -EFAULT;
		if (!copy_from_user(&move, from + done, sizeof(move)))
			err = us ? hand_over(&move, us) : carry_out(&move);
		if (err)
			return done ?: err;
		cond_resched();
	}
	return done;
}

/* Every open file reads the log from its beginning; after LAB_FORGET, seek there again. */
static ssize_t model_read(struct file *file, char __user *to, size_t bytes, loff_t *pos)
{
	return lab_truth_read(to, bytes, pos);
}

static const struct file_operations model_fops = {
	.owner = THIS_MODULE,
	.open = model_open,
	.read = model_read,
	.write = model_write,
	.unlocked_ioctl = model_ioctl,
	.llseek = default_llseek,
};

static struct miscdevice model = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "uncore-model",
	.fops = &model_fops,
	/* Tenants without privileges move traffic too. */
	.mode = 0666,
};

static int __init model_init(void)
{
	int err;

	workers = alloc_workqueue("uncore-model", WQ_CPU_INTENSIVE, 0);
	if (!workers)
		return -ENOMEM;
	err = misc_register(&model);
	if (err)
		destroy_workqueue(workers);
	return err;
}

static void __exit model_exit(void)
{
	misc_deregister(&model);
	destroy_workqueue(workers);
	held_unregister();
	while (nr_attached--)
		if (devices[nr_attached]->kind->detach)
			devices[nr_attached]->kind->detach(devices[nr_attached]);
	while (nr_devices--)
		free_device(devices[nr_devices]);
	lab_truth_free();
}

module_init(model_init);
module_exit(model_exit);

MODULE_DESCRIPTION("Device model of uncore PMUs: counts known traffic behind unmodified drivers");
MODULE_LICENSE("GPL");
