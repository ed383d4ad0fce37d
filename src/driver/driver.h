/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver: a run.
 *
 * One process per run. It asks the search for the next trial and the schedule
 * for a place, sends the trial to an agent, and commits every state change
 * before it acts on it. Clients connect over a unix socket.
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

/* Packs a spec without environment and function, marked as not resumable, for a snapshot that others can read. An
 * invalid spec becomes an empty one. 0 or -ENOMEM; an hy_spec_share_fn. */
int hy_run_share(const void *spec, size_t n, void **ret, size_t *ret_n);

/* How a run can be resumed. NULL: the spec cannot be read, and nothing is assumed. */
Hy__Resume hy_run_resume(const Hy__RunSpec *spec);
/* The command or call that resumes the run, between two texts: "hopyard resume 3", "experiment.resume(3,
 * spark=spark)". In `buf`; "" if it cannot be resumed. */
const char *hy_resume_clause(Hy__Resume how, int64_t run, const char *before, const char *after, char *buf, size_t n);

/* The path of the driver's socket; free it. */
char *hy_driver_socket(const char *store_dir, int64_t run, struct hy_err *err);

/* Whether `host` is a name of this machine, which needs no ssh. */
bool hy_host_is_here(const char *host);

/* The settings of the search that a spec describes, for the driver and for the check of the CLI. */
struct hy_search_settings hy_run_settings(const Hy__RunSpec *spec);
/* The same of its early stopping; spec->stop is set. */
struct hy_stop_settings hy_run_stop_settings(const Hy__RunSpec *spec);
/* Adds its dimensions to `space`; -EINVAL with a message, -ENOMEM. */
int hy_run_space(const Hy__RunSpec *spec, struct hy_space *space, struct hy_err *err);
/* Whether its dimensions are lists of values (--grid), not ranges (--space). */
bool hy_run_takes_lists(const Hy__RunSpec *spec);

/* Checks {name} in a command against the names of the space, before anything starts: -EINVAL with a message for an
 * unknown name. */
int hy_command_check(char *const *argv, char *const *names, struct hy_err *err);

#endif
