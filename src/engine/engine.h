/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine: how agents are started.
 *
 * An engine only starts and stops agents; all else is between them and the driver. A
 * new engine is one file with a function that makes the command.
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
    uint64_t id;            /* the driver's ID, passed to on_exit */
    const char *identity;   /* its identity ... */
    uint8_t key[HY_KEY_SIZE]; /* ... and its proof */
    const char *name;       /* its name for users: "local", "b" */
    const char *host;       /* NULL: this machine; otherwise the argument of ssh */
    uint32_t ssh_port;      /* 0: as ssh is configured */
    const char *ssh_identity; /* a file with a private key; NULL or "": as ssh is configured */
    uint16_t port;          /* where the driver listens */
    uint32_t slots;
    uint64_t open_files;    /* this machine: the user's soft limit, for trials; 0: not known */
    int hold_fd;            /* this machine: a lock to hold while it lives; -1: none */
    const char *client;     /* this machine: an agent on standby for this client and key is used; "": none is */
    const char *warm_key;
};

/* What the end of an agent's process means for the agent. Its trials end with it, unless its reaper was killed. */
enum hy_agent_end {
    HY_AGENT_UNREACHED, /* only the connection has ended (ssh broke): it may still run */
    HY_AGENT_ENDED,     /* by itself, or for unknown reasons */
    HY_AGENT_DIED,      /* by a signal, while its machine continued */
};

/* Of a process that ended with `status` or, if not 0, by `signal`. */
enum hy_agent_end hy_agent_end_of(bool remote, int64_t status, int signal);

struct hy_engine_events {
    /* The agent's process has ended, or could not be started; `why` is a
     * sentence ("ssh b: Permission denied (publickey).") or "exit status 0". */
    void (*on_exit)(void *arg, uint64_t id, enum hy_agent_end end, const char *why);
};

struct hy_engine *hy_engine_new(uv_loop_t *loop, const struct hy_engine_events *events, void *arg);
/* Sends SIGTERM to the reapers of running agents and does not wait; the loop must run
 * once more to close handles. NULL is fine. */
void hy_engine_free(struct hy_engine *e);

int hy_engine_start(struct hy_engine *e, const struct hy_agent_order *order, struct hy_err *err);
/* SIGTERM to an agent's process, and SIGKILL after 12 s (hy_engine_tick); on_exit
 * follows. */
void hy_engine_stop(struct hy_engine *e, uint64_t id);
/* A borrowed pidfd of an agent that was on standby and is not our descendant; -1: it is our descendant. */
int hy_engine_adopted(struct hy_engine *e, uint64_t id);
/* It goes on standby: the engine forgets it, without on_exit. Returns its PID, or 0: it is not our child. */
pid_t hy_engine_release(struct hy_engine *e, uint64_t id);
/* Call it a few times a second; `now` is monotonic, in ms. */
void hy_engine_tick(struct hy_engine *e, int64_t now);

#endif
