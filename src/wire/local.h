/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client end of a local socket, blocking and without a loop: for the command
 * line, and for trials, whose processes must not load libuv or OpenSSL.
 */
#ifndef HY_WIRE_LOCAL_H
#define HY_WIRE_LOCAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "hopyard.pb-c.h"

struct hy_buf;
struct hy_err;

#define HY_LOCAL_MAX (16u * 1024 * 1024)

/* For both ends. 0, or -ENAMETOOLONG with a message. */
int hy_local_address(const char *path, struct sockaddr_un *ret, struct hy_err *err);

int hy_local_connect(const char *path, struct hy_err *err); /* a close-on-exec fd */
/* The same with a time limit for connecting and for each message that is sent; 0: none. */
int hy_local_connect_within(const char *path, int timeout_ms, struct hy_err *err);
int hy_local_put(int fd, const uint8_t *bytes, size_t n);
/* Reads one message into `message` (cleared first); `rest` keeps the bytes read
 * after it. 1, 0 at the end of the stream, -ECONNRESET at its end in the middle
 * of a message, -EAGAIN after timeout_ms (-1: no timeout), -EINTR on a signal, or
 * -Exxx. */
int hy_local_get(int fd, struct hy_buf *rest, struct hy_buf *message, int timeout_ms);

#define HY_REPORT_METRICS_MAX 64

/*
 * Sends a report from a trial to its agent (HOPYARD_SOCKET and HOPYARD_TAG); the
 * token is filled in here. 0 when the agent has accepted it; -ENXIO outside a
 * trial, -ESTALE when the trial is over, or -Exxx, with a message. *ret_decision
 * is the newest decision of early stopping that the agent has; NULL: not of interest.
 */
int hy_report_send(const Hy__TrialReport *report, Hy__Decision__Kind *ret_decision, struct hy_err *err);

#endif
