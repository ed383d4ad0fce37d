/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses whose agents have broken the protocol. An agent that joins by itself
 * picks its own name, so that only its address can be refused. Agents from there
 * that are here already stay, and so do those that an engine starts.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "driver/run.h"

#define FIRST_S 10
#define LONGEST_S 600

/* The address without its port, which is another one for each connection. */
static void host_part(const char *address, char host[sizeof((struct banned *)0)->address])
{
    const char *colon = strrchr(address, ':');

    snprintf(host, sizeof((struct banned *)0)->address, "%.*s", (int)(colon ? colon - address : (int)strlen(address)), address);
}

static const struct banned *find(const struct driver *d, const char *host)
{
    for (size_t i = 0; i < BANNED_MAX; i++)
        if (strcmp(d->banned[i].address, host) == 0)
            return &d->banned[i];
    return NULL;
}

/* The one that may join the soonest makes room. */
static struct banned *find_or_replace(struct driver *d, const char *host)
{
    struct banned *found = (struct banned *)find(d, host), *soonest = &d->banned[0];

    for (size_t i = 1; i < BANNED_MAX; i++)
        if (d->banned[i].until_ms < soonest->until_ms)
            soonest = &d->banned[i];
    if (found)
        return found;
    *soonest = (struct banned){0};
    snprintf(soonest->address, sizeof soonest->address, "%s", host);
    return soonest;
}

int hy_banned_add(struct driver *d, const char *address)
{
    char host[sizeof((struct banned *)0)->address];
    struct banned *b;
    int seconds;

    host_part(address, host);
    b = find_or_replace(d, host);
    seconds = FIRST_S << (b->times < 6 ? b->times : 6);
    if (seconds > LONGEST_S)
        seconds = LONGEST_S;
    b->times++;
    b->until_ms = hy_clock_ms() + (int64_t)seconds * 1000;
    return seconds;
}

bool hy_banned_has(const struct driver *d, const char *address)
{
    char host[sizeof((struct banned *)0)->address];
    const struct banned *b;

    host_part(address, host);
    b = find(d, host);
    return b && hy_clock_ms() < b->until_ms;
}
