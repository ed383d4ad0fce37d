/* SPDX-License-Identifier: Apache-2.0 */
/*
 * client: runs seen from outside the driver.
 *
 * Starts drivers and connects to them, describes a run before it starts, and
 * reads the results of a run from the store and from its log files. The command
 * line shows what this part returns; nothing here prints or prompts.
 *
 *   this header        starting a driver; messages to and from it
 *   removal.h          removing runs and their files
 *   runs.h             projects and their runs, as the store has them
 *   history.h          trials and notes that are new since the last read
 *   log_tail.h         a log file that grows
 *   provenance.h       versions, commit and program of a run; its environment
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
#include "client/removal.h"
#include "client/runs.h"
#include "client/spec_fields.h"
#include "hopyard.pb-c.h"
#include "store/store.h"

/* ---- starting a driver ---- */

struct hy_launched {
    int64_t run;
    char *socket; /* of the driver */
    int owner;    /* of a run that the caller owns; otherwise -1 */
};
void hy_launched_done(struct hy_launched *l);
#define hy_cleanup_launched __attribute__((cleanup(hy_launched_done)))

/*
 * Starts a driver process, in a new session, for a new run and waits until the
 * run is in the store and its socket is open.
 *
 * If the run is owned by the caller, `owner` is an fd: when it is closed, at the
 * latest by the end of the caller's process, the driver stops the run, unless
 * hy_driver_disown was called before.
 */
int hy_driver_launch(const Hy__RunSpec *spec, bool owned, struct hy_launched *ret, struct hy_err *err);
/* The run continues without the caller. 0, or -Exxx: its driver has exited. */
int hy_driver_disown(int owner);
/* Starts a driver for a run that was interrupted, was stopped, or has failed trials. The executors of a new
 * SparkSession reach this machine at `address`; NULL if the run did not use a session of a client. */
int hy_driver_resume(const char *project, int64_t run, const char *address, struct hy_launched *ret,
                     struct hy_err *err);

/* ---- messages to and from a driver ---- */

/* Connects to the run's driver. An fd, or -Exxx with a message. */
int hy_client_connect(struct hy_store *s, int64_t run, struct hy_err *err);
/* The same, but not for longer than that: a driver that is stopped (SIGSTOP) may have a full backlog of connections. */
int hy_client_connect_within(struct hy_store *s, int64_t run, int timeout_ms, struct hy_err *err);
/* 0 or -Exxx. */
int hy_client_ask_status(int fd);
int hy_client_watch(int fd, bool trials);
int hy_client_stop(int fd, bool feed); /* the whole run, or only its feed */
int hy_client_announce(int fd, const char *tensorboard);
/* The next answer (allocated with hy_proto_memory) in *ret: 1, or the result of hy_local_get; -EPROTO. */
int hy_client_next(int fd, struct hy_buf *rest, struct hy_buf *message, int timeout_ms, Hy__ClientAnswer **ret);

#endif
