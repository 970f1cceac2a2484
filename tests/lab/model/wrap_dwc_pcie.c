// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's dwc_pcie_pmu driver as it is: its registers are in PCI configuration space, which
 * the model serves through a host bridge of its own.
 */
#include <dwc_pcie_pmu.c>
