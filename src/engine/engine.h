/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine: how agents are started.
 *
 * An engine only starts and stops agents; what they do then is between them
 * and the driver. Adding one is one file: a function that makes the command.
 *
 *   local   `hopyard agent` as a child of the driver, or one that an earlier
 *           driver of the same client has left on standby
 *   ssh     the same on another host; the program is copied if it is not there
 *
 * The agent gets its key on standard input and dials the driver's port. An
 * engine reports when the agent's process is over; whether to start another
 * one is the driver's decision.
 */
#ifndef HY_ENGINE_H
#define HY_ENGINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

#include "base/err.h"
#include "wire/wire.h"

struct hy_engine; /* opaque */

struct hy_agent_order {
    uint64_t id;            /* the driver's number, comes back in on_exit */
    const char *identity;   /* what it says it is ... */
    uint8_t key[HY_KEY_SIZE]; /* ... and its proof */
    const char *name;       /* for people: "local", "b" */
    const char *host;       /* NULL: this machine; otherwise what ssh is given */
    uint32_t ssh_port;      /* 0: as ssh is configured */
    const char *ssh_identity; /* a file with a private key; NULL or "": as ssh is configured */
    uint16_t port;          /* where the driver listens */
    uint32_t slots;
    uint64_t open_files;    /* this machine: the user's soft limit, for trials; 0: not known */
    int hold_fd;            /* this machine: a lock to hold while it lives; -1: none */
    const char *client;     /* this machine: an agent on standby for it and this key is taken; "": none is */
    const char *warm_key;
};

/* What the end of an agent's process says of the agent. Its trials end with it, unless its reaper was killed. */
enum hy_agent_end {
    HY_AGENT_UNREACHED, /* only the way to it has ended (ssh broke): it may live on */
    HY_AGENT_ENDED,     /* by itself, or nobody knows how */
    HY_AGENT_DIED,      /* by a signal, while its machine lived */
};

/* Of a process that ended with `status` or, if not 0, by `signal`. */
enum hy_agent_end hy_agent_end_of(bool remote, int64_t status, int signal);

struct hy_engine_events {
    /* The agent's process has ended, or could not be started; `why` is a
     * sentence ("ssh b: Permission denied (publickey).") or "exit status 0". */
    void (*on_exit)(void *arg, uint64_t id, enum hy_agent_end end, const char *why);
};

struct hy_engine *hy_engine_new(uv_loop_t *loop, const struct hy_engine_events *events, void *arg);
/* Asks agents that are still there to end (SIGTERM to their reapers) and does
 * not wait for it; the loop must run once more for the handles. NULL is fine. */
void hy_engine_free(struct hy_engine *e);

int hy_engine_start(struct hy_engine *e, const struct hy_agent_order *order, struct hy_err *err);
/* Asks an agent's process to end, and makes it if it does not within 12 s
 * (hy_engine_tick); on_exit follows. */
void hy_engine_stop(struct hy_engine *e, uint64_t id);
/* A pidfd, borrowed, of an agent that was on standby and is not our descendant; -1: it is none. */
int hy_engine_adopted(struct hy_engine *e, uint64_t id);
/* It goes on standby: from here on it is not ours, and there is no on_exit. Its process, or 0: it is no child of ours. */
pid_t hy_engine_release(struct hy_engine *e, uint64_t id);
/* Time passes: `now` is monotonic, in ms. To be called a few times a second. */
void hy_engine_tick(struct hy_engine *e, int64_t now);

#endif
