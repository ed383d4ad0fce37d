/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses whose agents have violated the protocol. An agent that joins by
 * itself chooses its own name, so only its address can be banned. Agents from
 * there that are already connected stay, and so do those that an engine starts.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "driver/run.h"

#define FIRST_S 10
#define LONGEST_S 600

/* The address without its port, which differs for each connection. */
static void host_part(const char *address, char host[sizeof((struct address_ban *)0)->address])
{
    const char *colon = strrchr(address, ':');
    int n = colon ? (int)(colon - address) : (int)strlen(address);

    snprintf(host, sizeof((struct address_ban *)0)->address, "%.*s", n, address);
}

static const struct address_ban *find(const struct driver *d, const char *host)
{
    for (size_t i = 0; i < ADDRESS_BANS_MAX; i++)
        if (strcmp(d->bans[i].address, host) == 0)
            return &d->bans[i];
    return NULL;
}

/* If the table is full, the ban that ends first is replaced. */
static struct address_ban *find_or_replace(struct driver *d, const char *host)
{
    struct address_ban *found = (struct address_ban *)find(d, host), *soonest = &d->bans[0];

    for (size_t i = 1; i < ADDRESS_BANS_MAX; i++)
        if (d->bans[i].until_ms < soonest->until_ms)
            soonest = &d->bans[i];
    if (found)
        return found;
    *soonest = (struct address_ban){0};
    snprintf(soonest->address, sizeof soonest->address, "%s", host);
    return soonest;
}

int hy_address_ban(struct driver *d, const char *address)
{
    char host[sizeof((struct address_ban *)0)->address];
    struct address_ban *b;
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

bool hy_address_is_banned(const struct driver *d, const char *address)
{
    char host[sizeof((struct address_ban *)0)->address];
    const struct address_ban *b;

    host_part(address, host);
    b = find(d, host);
    return b && hy_clock_ms() < b->until_ms;
}
