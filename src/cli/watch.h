/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shows a run until it ends, or until the user detaches.
 */
#ifndef HY_CLI_WATCH_H
#define HY_CLI_WATCH_H

#include "view/view.h"
#include "client/client.h"

enum hy_output {
    HY_OUTPUT_TEXT, /* a live table in a terminal, lines in a pipe */
    HY_OUTPUT_JSON,
    HY_OUTPUT_HTML,  /* for a notebook: each line is a complete fragment that replaces the previous one */
    HY_OUTPUT_QUIET, /* a live table in a terminal, without a summary */
};

struct hy_watching {
    const char *what; /* the command's name for error messages */
    enum hy_output form;
    int aside; /* error lines of a child process, shown as notes; -1: none */
    /* For a training, which output of its ranks is shown: */
    bool all_ranks;   /* not only that of rank 0 */
    int64_t since_ms; /* everything since this time (wall clock); 0: the last lines and new output */
    bool no_reason;   /* the caller prints the reason of a failure */
    bool started;     /* this command has started the run: SIGTERM stops it */
    int owner;        /* if the run ends with this command: the fd of hy_driver_launch; otherwise -1 */
};

/* Shows the run on standard output until it ends or the user detaches. Returns the exit status. Closes how->aside and
 * how->owner. */
int hy_watch(const char *project, int64_t run, const struct hy_watching *how);

/* Prints "run 3 continues; watch it with: …". `tensorboard` is the address of its TensorBoard, or "". */
int hy_print_detached(int64_t run, bool json, const char *tensorboard);

/* The exit status for the last update; `stopped`: the status if this command has stopped the run, otherwise 0. */
int hy_exit_status(const Hy__Update *last, int stopped);

#endif
