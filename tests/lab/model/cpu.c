// SPDX-License-Identifier: GPL-2.0-only
/*
 * LAB_CPU: a PMU that every CPU has to itself, as a core's. It has no registers and no driver but
 * this file; the kernel sees it as it sees those of cores, with `cpus` in place of a `cpumask`.
 *
 *   text  its name
 *
 * A move's event is the number in `event`, 0..255; source and target are 0. It is counted on the CPU
 * on which the mover runs at that moment.
 *
 * Guarantees: a CPU's counter advances by what moves there while it is enabled, and by nothing else;
 * reading it on its CPU is exact. The number of counters is not limited.
 */
#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/perf_event.h>
#include <linux/smp.h>

#include "model.h"

#define EVENTS 256

struct lab_cpu_pmu {
	struct pmu pmu;
	/* Written on its own CPU with interrupts off, so that readers there need no lock. */
	u64 moved[LAB_CPUS][EVENTS];
};

static u64 moved(const struct perf_event *event)
{
	const struct lab_cpu_pmu *of = container_of(event->pmu, struct lab_cpu_pmu, pmu);

	return READ_ONCE(of->moved[smp_processor_id()][event->attr.config]);
}

static void count(struct perf_event *event)
{
	u64 now = moved(event);
	u64 before = local64_xchg(&event->hw.prev_count, now);

	local64_add(now - before, &event->count);
}

static int event_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (is_sampling_event(event) || event->attach_state & PERF_ATTACH_TASK)
		return -EINVAL;
	if (event->cpu < 0 || event->cpu >= LAB_CPUS || event->attr.config >= EVENTS)
		return -EINVAL;
	return 0;
}

static void start(struct perf_event *event, int flags)
{
	event->hw.state = 0;
	local64_set(&event->hw.prev_count, moved(event));
}

static void stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	count(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		start(event, flags);
	return 0;
}

static ssize_t cpus_show(struct device *dev, struct device_attribute *attr, char *page)
{
	return cpumap_print_to_pagebuf(true, page, cpu_present_mask);
}
static DEVICE_ATTR_RO(cpus);

static struct attribute *attrs[] = { &dev_attr_cpus.attr, NULL };
static const struct attribute_group attr_group = { .attrs = attrs };

PMU_FORMAT_ATTR(event, "config:0-7");
static struct attribute *formats[] = { &format_attr_event.attr, NULL };
static const struct attribute_group format_group = { .name = "format", .attrs = formats };

/* The architecture's number (DDI 0487, D13). */
PMU_EVENT_ATTR_STRING(ll_cache_miss_rd, ll_cache_miss_rd, "event=0x37");
static struct attribute *events[] = { &ll_cache_miss_rd.attr.attr, NULL };
static const struct attribute_group event_group = { .name = "events", .attrs = events };

static const struct attribute_group *groups[] = {
	&attr_group,
	&format_group,
	&event_group,
	NULL,
};

static int cpu_define(struct lab_device *device)
{
	struct lab_cpu_pmu *of;

	if (nr_cpu_ids > LAB_CPUS || !device->def.text[0])
		return -EINVAL;
	of = kvzalloc(sizeof(*of), GFP_KERNEL);
	if (!of)
		return -ENOMEM;
	of->pmu = (struct pmu){
		.module = THIS_MODULE,
		.attr_groups = groups,
		.task_ctx_nr = perf_invalid_context,
		.capabilities = PERF_PMU_CAP_NO_INTERRUPT | PERF_PMU_CAP_NO_EXCLUDE,
		.event_init = event_init,
		.add = add,
		.del = stop,
		.start = start,
		.stop = stop,
		.read = count,
	};
	device->state = of;
	return 0;
}

static int cpu_attach(struct lab_device *device)
{
	struct lab_cpu_pmu *of = device->state;

	return perf_pmu_register(&of->pmu, device->def.text, -1);
}

static void cpu_detach(struct lab_device *device)
{
	struct lab_cpu_pmu *of = device->state;

	perf_pmu_unregister(&of->pmu);
}

static u64 cpu_read(struct lab_device *device, u32 offset, unsigned int bytes)
{
	return 0;
}

static void cpu_write(struct lab_device *device, u32 offset, unsigned int bytes, u64 value)
{
}

/* Interrupts are off here: this CPU is the mover's. */
static int cpu_move(struct lab_device *device, const struct lab_move *move)
{
	struct lab_cpu_pmu *of = device->state;
	u64 *moved;

	if (move->event >= EVENTS || move->source || move->target)
		return -EINVAL;
	moved = &of->moved[smp_processor_id()][move->event];
	WRITE_ONCE(*moved, *moved + move->amount);
	return 0;
}

const struct lab_kind lab_cpu = {
	.id = LAB_CPU,
	.name = "cpu",
	.define = cpu_define,
	.attach = cpu_attach,
	.detach = cpu_detach,
	.read = cpu_read,
	.write = cpu_write,
	.move = cpu_move,
};
