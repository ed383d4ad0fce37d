/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket on a loop. uv_listen accepts until no connection is
 * waiting; if another process connects in a loop, it never returns to the loop,
 * and closed handles are not freed. This one accepts at most HY_ACCEPTS_MAX
 * connections per turn of the loop, and pauses when out of descriptors or memory
 * instead of retrying at once. Private to src/wire.
 */
#ifndef HY_WIRE_LISTENER_H
#define HY_WIRE_LISTENER_H

#include <stdbool.h>
#include <uv.h>

#define HY_ACCEPTS_MAX 16
#define HY_ACCEPT_PAUSE_MS 100

/* Takes the descriptor (close-on-exec, non-blocking) and returns 0; or returns -Exxx, and is called again with it after
 * a pause. May close the listener. */
typedef int (*hy_listener_accept_fn)(void *arg, int fd);

struct hy_listener {
    unsigned pause_ms; /* set by the owner before hy_listener_open; 0: HY_ACCEPT_PAUSE_MS */

    uv_poll_t poll; /* private from here */
    uv_timer_t pause;
    int fd, held; /* held: accepted, but the owner returned an error; -1: none */
    int handles;
    hy_listener_accept_fn on_accept;
    void (*on_closed)(void *arg);
    void *arg;
};

/* Takes `fd`, which is already listening, on success. 0 or -Exxx; then there is nothing to close. */
int hy_listener_open(struct hy_listener *l, uv_loop_t *loop, int fd, hy_listener_accept_fn on_accept, void *arg);
/* Calls `on_closed` with the same `arg` when libuv has closed the handles. */
void hy_listener_close(struct hy_listener *l, void (*on_closed)(void *arg));

#endif
