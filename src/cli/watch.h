/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A driver's client: shows a run until it ends, or until the user leaves it.
 */
#ifndef HY_CLI_WATCH_H
#define HY_CLI_WATCH_H

#include "view/view.h"
#include "client/client.h"

enum hy_output {
    HY_OUTPUT_TEXT, /* a live table in a terminal, lines in a pipe */
    HY_OUTPUT_JSON,
    HY_OUTPUT_HTML,  /* for a notebook: each line is a whole fragment that replaces the one before */
    HY_OUTPUT_QUIET, /* a live table in a terminal, and nothing stays of it */
};

struct hy_watching {
    const char *what; /* names the command in complaints */
    enum hy_output form;
    int aside; /* a process beside it complains here, a line each: they become notes; -1: none */
    /* Of a training, what is shown of its ranks' output: */
    bool all_ranks;   /* not only rank 0's */
    int64_t since_ms; /* all from that time on (wall); 0: the last lines, and what follows */
    bool no_reason;   /* the caller says why it failed */
    bool started;     /* this command has started the run: SIGTERM stops it */
    int owner;        /* it ends with this command (hy_driver_launch); -1: it does not */
};

/* Shows the run on standard output until it ends or is left. Returns the exit
 * status. Closes how->aside and how->owner. */
int hy_watch(const char *project, int64_t run, const struct hy_watching *how);

/* "run 3 goes on; come back with …" for a run that nobody watches (any more).
 * `tensorboard` is the address of one that shows it, or "". */
int hy_print_detached(int64_t run, bool json, const char *tensorboard);

/* The exit status a run's end stands for; `stopped` where this command has stopped it, else 0. */
int hy_exit_status(const Hy__Update *last, int stopped);

#endif
