// SPDX-License-Identifier: GPL-2.0-only
/*
 * The truth log, in blocks that are allocated as it grows.
 *
 * Guarantees: a record that can be read is whole and does not move; a full log is an error before
 * anything is counted. Records stand in the order in which their moves were finished, which for
 * moves on two CPUs may differ from that of time_ns.
 */
#include <linux/cgroup.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/sched.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>
#include <linux/uaccess.h>

#include "truth.h"

/* The limit is over two million moves, beyond which a test is better split. */
#define BLOCK_BYTES   SZ_256K
#define BLOCKS        (SZ_128M / BLOCK_BYTES)
#define BLOCK_RECORDS (BLOCK_BYTES / (unsigned int)sizeof(struct lab_truth))

static struct lab_truth *blocks[BLOCKS];
static unsigned int nr_blocks;
static unsigned int used;
static unsigned int promised;
static DEFINE_SPINLOCK(lock); /* all of the above */
static DEFINE_MUTEX(growing); /* one allocates, the others wait for it */

/* Adds a block, unless somebody else did since there were `seen` of them. */
static int grow(unsigned int seen)
{
	struct lab_truth *block;
	int err = 0;

	mutex_lock(&growing);
	if (nr_blocks != seen)
		goto out;
	err = -ENOSPC;
	if (seen == BLOCKS)
		goto out;
	err = -ENOMEM;
	block = kvmalloc(BLOCK_BYTES, GFP_KERNEL);
	if (!block)
		goto out;
	err = 0;
	spin_lock(&lock);
	blocks[nr_blocks++] = block;
	spin_unlock(&lock);
out:
	mutex_unlock(&growing);
	return err;
}

int lab_truth_promise(void)
{
	unsigned int seen;
	bool room;
	int err;

	for (;;) {
		spin_lock(&lock);
		seen = nr_blocks;
		room = used + promised < seen * BLOCK_RECORDS;
		promised += room;
		spin_unlock(&lock);
		if (room)
			return 0;
		err = grow(seen);
		if (err)
			return err;
	}
}

void lab_truth_release(void)
{
	spin_lock(&lock);
	promised--;
	spin_unlock(&lock);
}

/* The task's cgroup in the v2 hierarchy; user space knows it by the inode of its directory. */
static u64 current_cgroup(void)
{
	u64 id;

	rcu_read_lock();
	id = cgroup_id(task_dfl_cgroup(current));
	rcu_read_unlock();
	return id;
}

void lab_truth_append(u64 time_ns, const struct lab_move *move)
{
	struct lab_truth record = {
		.time_ns = time_ns,
		.cgroup = current_cgroup(),
		.pid = task_tgid_nr(current),
		.tid = task_pid_nr(current),
		.move = *move,
	};

	spin_lock(&lock);
	promised--;
	blocks[used / BLOCK_RECORDS][used % BLOCK_RECORDS] = record;
	used++;
	spin_unlock(&lock);
}

ssize_t lab_truth_read(char __user *to, size_t bytes, loff_t *pos)
{
	size_t wanted = bytes / sizeof(struct lab_truth), done = 0;
	u64 first = *pos;
	unsigned int end;

	if (do_div(first, sizeof(struct lab_truth)) || !wanted)
		return -EINVAL;
	spin_lock(&lock);
	end = used;
	spin_unlock(&lock);

	while (done < wanted && first + done < end) {
		unsigned int at = first + done;
		unsigned int rest = BLOCK_RECORDS - at % BLOCK_RECORDS;
		size_t n = min3(wanted - done, (size_t)(end - at), (size_t)rest);

		if (copy_to_user(to + done * sizeof(struct lab_truth),
				 &blocks[at / BLOCK_RECORDS][at % BLOCK_RECORDS],
				 n * sizeof(struct lab_truth)))
			return -EFAULT;
		done += n;
	}
	*pos += done * sizeof(struct lab_truth);
	return done * sizeof(struct lab_truth);
}

void lab_truth_forget(void)
{
	spin_lock(&lock);
	used = 0;
	spin_unlock(&lock);
}

void lab_truth_free(void)
{
	while (nr_blocks)
		kvfree(blocks[--nr_blocks]);
}
