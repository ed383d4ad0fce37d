/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver: a run.
 *
 * One process per run. It asks the search for the next trial, asks the schedule
 * where it may run, sends it to an agent, and commits every state change before
 * it acts on it. Clients come and go over a unix socket.
 */
#ifndef HY_DRIVER_H
#define HY_DRIVER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "hopyard.pb-c.h"
#include "search/search.h"

/* `hopyard driver …`, started by hy_driver_launch and hy_driver_resume (client/client.h); returns the exit status. */
int hy_driver_main(int argc, char **argv);

/* Packs a run's spec anew for others, or from others: without environment and function, and never to be resumed.
 * What cannot be read becomes an empty one. 0 or -ENOMEM; an hy_spec_share_fn. */
int hy_run_share(const void *spec, size_t n, void **ret, size_t *ret_n);

/* How a run can be resumed; NULL, one whose spec cannot be read, counts as any. */
Hy__Resume hy_run_resume(const Hy__RunSpec *spec);
/* What to type or call for it, between two texts: "hopyard resume 3", "experiment.resume(3, spark=spark)". In `buf`;
 * "" where nothing helps. */
const char *hy_resume_clause(Hy__Resume how, int64_t run, const char *before, const char *after, char *buf, size_t n);

/* Where the driver of a run listens; free it. `folder` is the store's. */
char *hy_driver_socket(const char *folder, int64_t run, struct hy_err *err);

/* Whether that is a name of this machine, which needs no ssh. */
bool hy_host_is_here(const char *host);

/* The search that a run asks for, for the driver and for the CLI's check. */
struct hy_search_settings hy_run_settings(const Hy__RunSpec *spec);
/* Adds its dimensions to `space`; -EINVAL with a sentence, -ENOMEM. */
int hy_run_space(const Hy__RunSpec *spec, struct hy_space *space, struct hy_err *err);
/* Whether they are lists of values (--grid), not ranges (--space). */
bool hy_run_takes_lists(const Hy__RunSpec *spec);

/* Replaces {name} by values; the names are those of the space. For the CLI's
 * check before anything starts: -EINVAL with a sentence for an unknown name. */
int hy_command_check(char *const *argv, char *const *names, struct hy_err *err);

#endif
