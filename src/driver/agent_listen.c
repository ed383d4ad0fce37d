/* SPDX-License-Identifier: Apache-2.0 */
/* The socket on which agents connect, and the keys with which they authenticate. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "driver/agents.h"
#include "wire/wire.h"

static int find_key(void *arg, const char *identity, uint8_t key[HY_KEY_SIZE])
{
    struct driver *d = arg;

    if (strncmp(identity, "join-", 5) == 0)
        return d->spec->listen && *d->spec->listen ? hy_key_derive(d->agents.join_key, identity, key) : -ENOENT;
    return hy_agent_find(d, identity) ? hy_key_derive(d->agents.key, identity, key) : -ENOENT;
}

/* "[::1]:4711", "192.0.2.1:4711", ":4711" or "4711"; without an address `address` stays empty. */
static int parse_listen_address(const char *text, char *address, size_t size, uint16_t *ret_port)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;

    if (colon && colon != text)
        return hy_parse_host_port(text, address, size, ret_port);
    if (hy_parse_u64(colon ? colon + 1 : text, &port) < 0 || port > UINT16_MAX)
        return -EINVAL;
    *ret_port = (uint16_t)port;
    return 0;
}

/* Hosts connect to the address from which ssh reached them, which may be IPv6: "::" accepts both. */
int hy_agents_listen(struct driver *d, struct hy_err *err)
{
    const char *text = d->spec->listen ? d->spec->listen : "";
    char address[256] = "";
    uint16_t port = 0;

    if (*d->spec->engine)
        return hy_net_listen(d->agents.net, d->spec->address, 0, find_key, d, &d->agents.port, err);
    if (!*text && !d->spec->n_hosts && !*d->spec->discovery)
        text = "127.0.0.1:0";
    if (*text && parse_listen_address(text, address, sizeof address, &port) < 0)
        return hy_err_set(err, -EINVAL, "invalid --listen '%s'; use [ADDRESS:]PORT", text);
    if (*address)
        return hy_net_listen(d->agents.net, address, port, find_key, d, &d->agents.port, err);
    if (hy_net_listen(d->agents.net, "::", port, find_key, d, &d->agents.port, NULL) == 0)
        return 0;
    return hy_net_listen(d->agents.net, "0.0.0.0", port, find_key, d, &d->agents.port, err);
}

int hy_agents_write_join_key(struct driver *d, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    int rc;

    if (!d->spec->listen || !*d->spec->listen)
        return 0;
    path = hy_asprintf("%s/run-%lld.key", hy_store_dir_path(d->store), (long long)d->run);
    if (!path || hy_key_derive(d->agents.key, "join", d->agents.join_key) < 0)
        return hy_err_oom(err);
    rc = hy_key_write(hy_store_dir_fd(d->store), path, d->agents.join_key, err);
    if (rc == 0)
        hy_run_note(d, "agents join by: hopyard agent --join HOST:%u --key-file %s", d->agents.port, path);
    return rc;
}
