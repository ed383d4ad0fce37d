/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals as bytes of a pipe, for poll loops. Handlers instead of a signal mask
 * (signalfd), because child processes (a driver, git) would inherit the mask.
 */
#ifndef HY_CLI_SIGNALS_H
#define HY_CLI_SIGNALS_H

/*
 * Catches INT, TERM, HUP, QUIT, TSTP, CONT and WINCH from now on, and makes
 * writes to a closed pipe fail with EPIPE. Returns the fd to poll (it stays
 * open), or -Exxx. A second call returns the same fd.
 */
int hy_signals_open(void);
/* The next pending signal, or 0. */
int hy_signals_next(void);
/* Restores the default actions, for example to die of a signal. */
void hy_signals_close(void);

#endif
