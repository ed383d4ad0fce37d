/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: the command line, `hopyard COMMAND …`.
 *
 * It starts drivers, watches them, and reads the store; all decisions about a
 * run are the driver's. One table describes all commands and options
 * (commands.c): parsing, help and "did you mean" are generated from it.
 */
#ifndef HY_CLI_H
#define HY_CLI_H

/* Exit statuses; documented in docs/cli.md. */
enum hy_exit {
    HY_EXIT_OK = 0,       /* all done, or detached */
    HY_EXIT_FAILED = 1,   /* a trial or the run failed */
    HY_EXIT_USAGE = 2,    /* invalid usage */
    HY_EXIT_STOPPED = 130, /* stopped by Ctrl-C */
    HY_EXIT_SIGNAL = 128 /* plus the number of the signal that stopped it */
};

/* Everything `main` does; returns the exit status. */
int hy_cli_main(int argc, char **argv);

#endif
