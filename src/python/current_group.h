/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The group that this process is in, if it is in one: hvd.init() and what comes
 * after are calls without an object. Whoever uses it holds it, so that a
 * shutdown in one thread does not take it from under another.
 */
#ifndef HY_PYTHON_CURRENT_GROUP_H
#define HY_PYTHON_CURRENT_GROUP_H

#include "collective/collective.h"

/* 0 also when we are in one already. -EINTR: a signal came; call again. */
int hy_current_group_join(bool (*give_up)(void *arg), void *arg, struct hy_err *err);
/* Whoever waits for something gets an error. Nothing when we are in none. */
void hy_current_group_leave(void);

/* NULL: we are in none. Release what you got. */
struct hy_group *hy_current_group_hold(void);
void hy_current_group_release(void);

#endif
