/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Device files by which a process holds a function; see held.c.
 */
#ifndef UNCORE_LAB_HELD_H
#define UNCORE_LAB_HELD_H

struct device;

/* Makes a file for a function. May sleep; not for several tasks at the same time. */
int held_register(struct device *parent);

/* Removes all of them, before their functions. */
void held_unregister(void);

#endif
