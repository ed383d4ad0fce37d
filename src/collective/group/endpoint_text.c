/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of an endpoint; see endpoint.h for the format. */
#include "collective/group/endpoint.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "collective/mesh/mesh.h"

#define MAGIC "hopyard1"

void hy_endpoint_format(const struct hy_endpoint *e, char text[HY_ENDPOINT_TEXT])
{
    char key[2 * HY_HANDSHAKE_KEY + 1];
    int at;

    for (size_t i = 0; i < sizeof e->key; i++)
        snprintf(key + 2 * i, 3, "%02x", e->key[i]);
    at = snprintf(text, HY_ENDPOINT_TEXT, MAGIC " %s %s %u ", e->host, key, e->port);
    for (unsigned i = 0; i < e->address_count; i++) {
        if (at + (int)strlen(e->addresses[i]) + 2 > HY_ENDPOINT_TEXT)
            break; /* loopback addresses come last */
        at += snprintf(text + at, (size_t)(HY_ENDPOINT_TEXT - at), "%s%s", i ? "," : "", e->addresses[i]);
    }
    explicit_bzero(key, sizeof key);
}

static int parse_key(const char *text, uint8_t key[HY_HANDSHAKE_KEY])
{
    if (strlen(text) != 2 * HY_HANDSHAKE_KEY || strspn(text, "0123456789abcdef") != 2 * HY_HANDSHAKE_KEY)
        return -EPROTO;
    for (size_t i = 0; i < HY_HANDSHAKE_KEY; i++) {
        const char byte[] = {text[2 * i], text[2 * i + 1], '\0'};

        key[i] = (uint8_t)strtoul(byte, NULL, 16);
    }
    return 0;
}

static int parse_addresses(char *text, struct hy_endpoint *e)
{
    struct sockaddr_storage address;
    socklen_t size;
    char *one;

    while ((one = strsep(&text, ","))) {
        if (e->address_count == HY_ENDPOINT_ADDRESSES || strlen(one) >= sizeof e->addresses[0] ||
            hy_mesh_parse_address(one, e->port, &address, &size) < 0)
            return -EPROTO;
        strcpy(e->addresses[e->address_count++], one);
    }
    return 0;
}

int hy_endpoint_parse(const char *text, struct hy_endpoint *ret)
{
    struct hy_endpoint e = {0};
    char copy[HY_ENDPOINT_TEXT], *rest = copy, *word[5];
    uint64_t port;
    int rc = -EPROTO;

    if (strlen(text) >= sizeof copy)
        return -EPROTO;
    strcpy(copy, text);
    for (size_t i = 0; i < HY_COUNT(word); i++)
        word[i] = i + 1 < HY_COUNT(word) ? strsep(&rest, " ") : rest;
    if (word[4] && strcmp(word[0], MAGIC) == 0 && *word[1] && strlen(word[1]) < sizeof e.host &&
        hy_parse_u64(word[3], &port) == 0 && port > 0 && port <= UINT16_MAX) {
        strcpy(e.host, word[1]);
        e.port = (uint16_t)port;
        rc = parse_key(word[2], e.key);
        if (rc == 0)
            rc = parse_addresses(word[4], &e);
    }
    if (rc == 0)
        *ret = e;
    explicit_bzero(copy, sizeof copy);
    explicit_bzero(&e, sizeof e);
    return rc;
}
