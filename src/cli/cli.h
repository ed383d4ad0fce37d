/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli: the command line, `hopyard COMMAND …`.
 *
 * It starts drivers, watches them, and reads the store; it decides nothing
 * about a run. What a person types is described by one table of commands and
 * options (commands.c): parsing, help and "did you mean" all come from it.
 */
#ifndef HY_CLI_H
#define HY_CLI_H

/* What the program answers to its caller; docs/cli.md says the same. */
enum hy_exit {
    HY_EXIT_OK = 0,       /* all done, or detached */
    HY_EXIT_FAILED = 1,   /* a trial or the run failed */
    HY_EXIT_USAGE = 2,    /* it was asked for something that cannot be */
    HY_EXIT_STOPPED = 130, /* stopped by Ctrl-C */
    HY_EXIT_SIGNAL = 128 /* plus the number of the signal that stopped it */
};

/* Everything `main` does; returns the exit status. */
int hy_cli_main(int argc, char **argv);

#endif
