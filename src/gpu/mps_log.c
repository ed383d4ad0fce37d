/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an MPS server writes about a fault (driver 580, an illegal access of
 * process 604; each line begins with "[2026-11-15 07:45:32.837 Server   466] "):
 *
 *     Client {PID: 579, Context: 1} encountered a fatal GPU error.
 *     Server is handling a fatal GPU error.
 *     Client {PID: 578, Context ID: 1} on device 0 to be torn down
 *     …
 *     The following client process have a sticky error set:
 *     578
 *     604
 *     Client {PID: 577, Context ID: 1} exiting. Number of active client contexts is 0.
 *     Destroy server context on device 0 (NVIDIA H200)
 *
 * It is written before the clients get their error. Which clients were hit is
 * certain; which one caused it is not in the log: the client that "encountered" it
 * here did not. Until the last of them is gone the server accepts no new clients.
 */
#include <string.h>

#include "gpu/internal.h"

/* Whether the line has this text. */
static bool is_set_in(const char *line, size_t n, const char *words)
{
    return memmem(line, n, words, strlen(words)) != NULL;
}

/* A line that is a number and nothing else, behind its head: an entry of the list. */
static bool is_entry(const char *line, size_t n)
{
    const char *head = memchr(line, ']', n);
    size_t at = head ? (size_t)(head - line) + 1 : n, first;

    while (at < n && line[at] == ' ')
        at++;
    for (first = at; at < n && line[at] >= '0' && line[at] <= '9'; at++)
        ;
    return at == n && at > first;
}

struct scan {
    struct hy_mps_faults *faults;
    bool listing;
    unsigned listed;
};

static void take_line(struct scan *s, const char *line, size_t n, size_t offset)
{
    struct hy_mps_faults *f = s->faults;

    if (s->listing && is_entry(line, n)) {
        s->listed++;
        f->clients_hit = s->listed > f->clients_hit ? s->listed : f->clients_hit;
        return;
    }
    s->listing = f->any && is_set_in(line, n, "have a sticky error set:");
    s->listed = 0;
    if (is_set_in(line, n, "fatal GPU error")) {
        f->last = f->any && !f->over ? f->last : offset;
        f->any = true;
        f->over = false;
    } else if (is_set_in(line, n, "server context on device") || is_set_in(line, n, "] Startup")) {
        f->over = f->any;
    }
}

void hy_mps_log_scan(const char *text, size_t n, struct hy_mps_faults *ret)
{
    struct scan s = {.faults = ret};

    memset(ret, 0, sizeof *ret);
    for (size_t at = 0, end; at < n; at = end + 1) {
        const char *newline = memchr(text + at, '\n', n - at);

        end = newline ? (size_t)(newline - text) : n;
        take_line(&s, text + at, end - at, at);
    }
}
