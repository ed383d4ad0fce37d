/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group of ranks that this process has joined, a global because hvd.init() and
 * the calls after it have no object. Users hold a reference, so that a shutdown in
 * one thread does not free the group while another uses it. Thread-safe.
 */
#ifndef HY_PYTHON_CURRENT_GROUP_H
#define HY_PYTHON_CURRENT_GROUP_H

#include "collective/collective.h"

/* 0 also when the process is in a group already. -EINTR after a signal: call again. */
int hy_current_group_join(bool (*give_up)(void *arg), void *arg, struct hy_err *err);
/* Pending waits return an error. Does nothing when the process is not in a group. */
void hy_current_group_leave(void);

/* NULL: not in a group. */
struct hy_group *hy_current_group_hold(void);
void hy_current_group_release(void);

#endif
