/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: runs seen from outside the driver.
 *
 * Starts drivers and connects to them, describes a run before it starts, and
 * reads the results of a run from the store and from its log files. The command
 * line shows what this part returns; nothing here prints or prompts.
 *
 *   this header        starting a driver; messages to and from it
 *   runs.h             projects and their runs, as the store has them
 *   history.h          trials and notes that are new since the last read
 *   log_tail.h         a log file that grows
 *   provenance.h       versions, commit and program of a run; its environment
 *   supply_lines.h     JSON lines of a program that starts agents for a run
 */
#ifndef HY_CLIENT_CLIENT_H
#define HY_CLIENT_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "client/history.h"
#include "client/log_tail.h"
#include "client/provenance.h"
#include "client/runs.h"
#include "client/spec_fields.h"
#include "client/supply_lines.h"
#include "hopyard.pb-c.h"
#include "store/store.h"

/* ---- starting a driver ---- */

/*
 * Starts a driver process, in a new session, for a new run and waits until the
 * run is in the store and its socket is open. *ret_run gets its number.
 *
 * With `ret_owner` the run belongs to the caller, and *ret_owner gets an fd:
 * when it is closed, at the latest by the end of the caller's process, the
 * driver stops the run, unless hy_driver_disown was called before.
 */
int hy_driver_launch(const Hy__RunSpec *spec, int *ret_owner, int64_t *ret_run, struct hy_err *err);
/* The run continues without the caller. 0, or -Exxx: its driver has exited. */
int hy_driver_disown(int owner);
/* Starts a driver for a run that was interrupted, was stopped, or has failed trials. The executors of a new
 * SparkSession reach this machine at `address`; NULL if the run did not use a session of a client. */
int hy_driver_resume(const char *project, int64_t run, const char *address, struct hy_err *err);

/* ---- messages to and from a driver ---- */

/* Connects to the run's driver. An fd, or -Exxx with a message. */
int hy_client_connect(struct hy_store *s, int64_t run, struct hy_err *err);
/* 0 or -Exxx. */
int hy_client_watch(int fd, bool trials);
int hy_client_stop(int fd, bool feed); /* the whole run, or only its feed */
int hy_client_hold_feed(int fd);       /* the nodes of a cluster expect rows as long as `fd` is open */
int hy_client_announce(int fd, const char *tensorboard);
/* This client starts agents for the run, or can now start more. */
int hy_client_supply(int fd, const Hy__Supply *offer);
/* One of these agents has ended. */
int hy_client_agent_ended(int fd, const struct hy_supply_line *line);
/* The next answer (allocated with hy_proto_memory) in *ret: 1, or the result of hy_local_get; -EPROTO. */
int hy_client_next(int fd, struct hy_buf *rest, struct hy_buf *message, int timeout_ms, Hy__ClientAnswer **ret);

#endif
