/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver's client: shows a run until it ends, or until the user leaves it.
 */
#ifndef HY_CLI_WATCH_H
#define HY_CLI_WATCH_H

#include "cli/board.h"
#include "cli/runs.h"
#include "cli/teller.h"

enum hy_form {
    HY_FORM_PERSON, /* a live table in a terminal, lines in a pipe */
    HY_FORM_JSON,
    HY_FORM_HTML,  /* for a notebook: each line is a whole fragment that replaces the one before */
    HY_FORM_QUIET, /* a live table in a terminal, and nothing stays of it */
};

struct hy_watching {
    const char *what; /* names the command in complaints */
    enum hy_form form;
    int aside; /* a process beside it complains here, a line each: they become notes; -1: none */
    /* Of a training, what is shown of its ranks' output: */
    bool all_ranks;   /* not only rank 0's */
    int64_t since_ms; /* all from that time on (wall); 0: the last lines, and what follows */
};

/* Shows the run on standard output until it ends or is left. Returns the exit
 * status. Closes how->aside. */
int hy_watch(const char *project, int64_t run, const struct hy_watching *how);

/* "run 3 goes on; come back with …" for a run that nobody watches (any more).
 * `tensorboard` is the address of one that shows it, or "". */
int hy_say_detached(int64_t run, bool json, const char *tensorboard);

/* Connects to the run's driver. An fd, or -Exxx with a sentence. */
int hy_client_connect(struct hy_store *s, int64_t run, struct hy_err *err);
/* 0 or -Exxx. */
int hy_client_watch(int fd, bool trials);
int hy_client_stop(int fd, bool feed); /* all of it, or only what is fed to its nodes */
int hy_client_feeds(int fd); /* as long as it is open, rows may come to a cluster's nodes */
int hy_client_announce(int fd, const char *tensorboard);
/* This client starts agents for the run, or can now start more. One of them is over, and why. */
int hy_client_supply(int fd, const Hy__Supply *offer);
int hy_client_over(int fd, uint64_t id, bool lives, const char *why);
/* The next answer (made with hy_proto_memory) in *ret: 1, or what hy_local_get answers; -EPROTO. */
struct hy_buf;
int hy_client_next(int fd, struct hy_buf *rest, struct hy_buf *message, int timeout_ms,
                   Hy__ClientAnswer **ret);

/* The exit status a run's end stands for. */
int hy_exit_of(const Hy__Update *last, bool stopped_by_us);

/* The first failed trials of the store, for the summary. Failing is fine: then they are missing. */
void hy_board_failures(struct hy_board *b, struct hy_store *s, int64_t run);
/* The rank of a training that failed first, and its last words. Failing is fine, too. */
void hy_board_find_culprit(struct hy_board *b, struct hy_store *s, const struct hy_runinfo *info);
/* What people should know of it, as the store has it. */
void hy_board_notes(struct hy_board *b, struct hy_store *s, int64_t run);
/* The newest trials of the store that have ended. Failing is fine, too. */
void hy_board_newest(struct hy_board *b, struct hy_store *s, const struct hy_runinfo *info);
/* Tells a run from the store alone, as the driver would have: its trials, if
 * none were told before, and its end. 0 or -Exxx. */
int hy_teller_from_store(struct hy_teller *t, struct hy_store *s, const struct hy_runinfo *info,
                         const Hy__Update *last, struct hy_out *out, int fd, struct hy_err *err);

#endif
