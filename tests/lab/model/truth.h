/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The truth log: every move that was counted, kept until LAB_FORGET.
 *
 * Room for a record is reserved before its move is counted, so that no move is counted without being
 * logged. All functions must run in process context.
 */
#ifndef UNCORE_LAB_TRUTH_H
#define UNCORE_LAB_TRUTH_H

#include <linux/types.h>

#include "abi.h"

/* Reserves room for one record. -ENOSPC: the log is full, -ENOMEM: no memory. */
int lab_truth_promise(void);

/* Gives the room back: the move was refused. */
void lab_truth_release(void);

/* Fills reserved room with a move of the current task. */
void lab_truth_append(u64 time_ns, const struct lab_move *move);

/* Copies whole records from byte *pos on; 0 at the end of the log. */
ssize_t lab_truth_read(char __user *to, size_t bytes, loff_t *pos);

/* Empties the log, keeping its memory. */
void lab_truth_forget(void);

/* Frees the memory. The log must not be used afterwards. */
void lab_truth_free(void);

#endif
