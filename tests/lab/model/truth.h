/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The truth log: every move that was counted, kept until user space has it forgotten.
 *
 * A record is promised before its move is counted, so that no move is ever counted and then not
 * logged. All functions want process context.
 */
#ifndef UNCORE_LAB_TRUTH_H
#define UNCORE_LAB_TRUTH_H

#include <linux/types.h>

#include "abi.h"

/* Sets one record's room aside. -ENOSPC: the log is full, -ENOMEM: the machine is. */
int lab_truth_promise(void);

/* Gives the room back: the move was refused. */
void lab_truth_release(void);

/* Fills promised room with a move of the current task. */
void lab_truth_append(u64 time_ns, const struct lab_move *move);

/* Copies whole records from byte *pos on; 0 at the end of the log. */
ssize_t lab_truth_read(char __user *to, size_t bytes, loff_t *pos);

/* Empties the log, keeping its memory. */
void lab_truth_forget(void);

/* Gives the memory back; nobody may use the log any more. */
void lab_truth_free(void);

#endif
