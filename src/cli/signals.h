/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals as bytes of a pipe, for a loop that polls. Handlers rather than a
 * mask: what we start (a driver, git) begins with everything at its default.
 */
#ifndef HY_CLI_SIGNALS_H
#define HY_CLI_SIGNALS_H

/*
 * Catches INT, TERM, HUP, QUIT, TSTP, CONT and WINCH from now on, and makes
 * writes to a closed pipe fail with EPIPE. Returns the fd to poll (it stays
 * open), or -Exxx. A second call returns the same fd.
 */
int hy_signals_open(void);
/* The next signal that came, 0 when there is none. */
int hy_signals_next(void);
/* Everything at its default again; for dying of a signal, too. */
void hy_signals_close(void);

#endif
