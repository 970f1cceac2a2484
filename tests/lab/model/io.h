/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Puts the device model behind an unmodified driver: a wrapper includes this file and then the
 * driver's source.
 *
 * Guarantees: whatever the driver maps is a physical address nobody has mapped, every access to a
 * register by the functions below goes to the model, and any other faults instead of reading RAM.
 * The kernel's own headers come first, so that only the driver's text sees the macros.
 */
#ifndef UNCORE_LAB_IO_H
#define UNCORE_LAB_IO_H

#include <linux/acpi.h>
#include <linux/cpumask.h>
#include <linux/interrupt.h>
#include <linux/io.h>
#include <linux/io-64-nonatomic-lo-hi.h>
#include <linux/module.h>
#include <linux/of.h>
#include <linux/perf_event.h>
#include <linux/platform_device.h>

#include "model.h"

static inline void __iomem *lab_map(const struct resource *res)
{
	return res ? (void __iomem *)res->start : IOMEM_ERR_PTR(-EINVAL);
}

static inline void __iomem *lab_platform_map(struct platform_device *pdev, unsigned int index,
					     struct resource **res)
{
	struct resource *found = platform_get_resource(pdev, IORESOURCE_MEM, index);

	if (res)
		*res = found;
	return lab_map(found);
}

/* Every device asks for its interrupt's number, also where several share one handler. */
static inline int lab_platform_irq(struct platform_device *pdev, int irq)
{
	const struct resource *res = platform_get_resource(pdev, IORESOURCE_MEM, 0);

	if (irq > 0 && res)
		lab_request_irq(lab_map(res), irq);
	return irq;
}

static inline void lab_lo_hi_writeq(u64 value, volatile void __iomem *addr)
{
	lab_write(addr, 4, lower_32_bits(value));
	lab_write(addr + 4, 4, upper_32_bits(value));
}

#define devm_platform_ioremap_resource(pdev, index) lab_platform_map(pdev, index, NULL)
#define devm_platform_get_and_ioremap_resource(pdev, index, res) \
	lab_platform_map(pdev, index, res)
#define devm_ioremap_resource(dev, res) lab_map(res)
#define devm_ioremap(dev, start, size) ((void __iomem *)(start))

#define platform_get_irq(pdev, index) lab_platform_irq(pdev, (platform_get_irq)(pdev, index))
#define platform_get_irq_optional(pdev, index) \
	lab_platform_irq(pdev, (platform_get_irq_optional)(pdev, index))

#undef readl
#undef readq
#undef writel
#undef writeq
#undef readl_relaxed
#undef readq_relaxed
#undef writel_relaxed
#undef writeq_relaxed
#undef lo_hi_writeq
#define readl(addr) ((u32)lab_read(addr, 4))
#define readq(addr) lab_read(addr, 8)
#define writel(value, addr) lab_write(addr, 4, (u32)(value))
#define writeq(value, addr) lab_write(addr, 8, value)
#define readl_relaxed(addr) readl(addr)
#define readq_relaxed(addr) readq(addr)
#define writel_relaxed(value, addr) writel(value, addr)
#define writeq_relaxed(value, addr) writeq(value, addr)
#define lo_hi_writeq(value, addr) lab_lo_hi_writeq(value, addr)

#endif
