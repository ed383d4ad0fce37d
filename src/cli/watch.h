/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver's client: shows a run until it ends, or until the user leaves it.
 */
#ifndef HY_CLI_WATCH_H
#define HY_CLI_WATCH_H

#include "cli/board.h"
#include "cli/runs.h"
#include "cli/teller.h"

/*
 * Shows the run on standard output: a live table in a terminal, lines in a
 * pipe, JSON when asked. Returns the exit status; `what` names the command in
 * complaints.
 */
int hy_watch(const char *project, int64_t run, bool json, const char *what);

/* "run 3 goes on; come back with …" for a run that nobody watches (any more). */
int hy_say_detached(int64_t run, bool json);

/* Connects to the run's driver. An fd, or -Exxx with a sentence. */
int hy_client_connect(struct hy_store *s, int64_t run, struct hy_err *err);
/* 0 or -Exxx. */
int hy_client_watch(int fd, bool trials);
int hy_client_stop(int fd);
/* The next answer (made with hy_proto_memory) in *ret: 1, or what hy_local_get answers; -EPROTO. */
struct hy_buf;
int hy_client_next(int fd, struct hy_buf *rest, struct hy_buf *message, int timeout_ms,
                   Hy__ClientAnswer **ret);

/* The exit status a run's end stands for. */
int hy_exit_of(const Hy__Update *last, bool stopped_by_us);

/* The first failed trials of the store, for the summary. Failing is fine: then they are missing. */
void hy_board_failures(struct hy_board *b, struct hy_store *s, int64_t run);
/* Tells a run from the store alone, as the driver would have: its trials, if
 * none were told before, and its end. 0 or -Exxx. */
int hy_teller_from_store(struct hy_teller *t, struct hy_store *s, const struct hy_runinfo *info,
                         const Hy__Update *last, struct hy_out *out, int fd, struct hy_err *err);

#endif
