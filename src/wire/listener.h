/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A listening socket on a loop. uv_listen accepts until no connection is
 * waiting; while another process connects in a loop, that is never, and handles
 * that were closed meanwhile are not freed. This one accepts at most
 * HY_ACCEPTS_MAX connections in a turn of the loop, and pauses when descriptors
 * or memory are short instead of trying again at once. Private to src/wire.
 */
#ifndef HY_WIRE_LISTENER_H
#define HY_WIRE_LISTENER_H

#include <stdbool.h>
#include <uv.h>

#define HY_ACCEPTS_MAX 16
#define HY_ACCEPT_PAUSE_MS 100

/* Takes the descriptor (close-on-exec, non-blocking) and returns 0; or returns -Exxx, and is offered it again after a
 * pause. May close the listener. */
typedef int (*hy_listener_accept_fn)(void *arg, int fd);

struct hy_listener {
    unsigned pause_ms; /* the owner's to set before hy_listener_open; 0: HY_ACCEPT_PAUSE_MS */

    uv_poll_t poll; /* private from here */
    uv_timer_t pause;
    int fd, held; /* held: accepted, and not taken by the owner; -1: none */
    int handles;
    hy_listener_accept_fn on_accept;
    void (*on_closed)(void *arg);
    void *arg;
};

/* `fd` listens already, and is taken on success. Returns 0 or -Exxx; then there is nothing to close. */
int hy_listener_open(struct hy_listener *l, uv_loop_t *loop, int fd, hy_listener_accept_fn on_accept, void *arg);
/* `on_closed` is called with the same `arg` when the loop has let go of it. */
void hy_listener_close(struct hy_listener *l, void (*on_closed)(void *arg));

#endif
