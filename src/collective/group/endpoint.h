/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The endpoint at which rank 0 of a launcher's job serves ranks on other machines: TCP addresses, and a key with which
 * both ends of a connection authenticate (handshake.h). The launcher distributes it as one line of text (pmi.h):
 *
 *     hopyard1 HOST KEY PORT ADDRESS,ADDRESS,...
 *
 * HOST is rank 0's host ID, KEY has 64 hexadecimal digits.
 */
#ifndef HY_COLLECTIVE_ENDPOINT_H
#define HY_COLLECTIVE_ENDPOINT_H

#include <stdint.h>

#include "base/err.h"
#include "collective/mesh/handshake.h"

#define HY_ENDPOINT_TEXT 1000  /* with its NUL; PMI-2 is limited to 1,023 bytes */
#define HY_HOST_ID 160
#define HY_ENDPOINT_ADDRESSES 16u

struct hy_endpoint {
    char host[HY_HOST_ID];
    uint8_t key[HY_HANDSHAKE_KEY];
    uint16_t port;
    unsigned address_count;
    char addresses[HY_ENDPOINT_ADDRESSES][46]; /* INET6_ADDRSTRLEN */
};

/* Processes with the same host ID can share memory and reach each other's abstract sockets. It consists of host name,
 * boot ID, network and PID namespace. */
int hy_host_id(char id[HY_HOST_ID], struct hy_err *err);

/* Listens for ranks on other machines, with a new key: a descriptor, and *ret. */
int hy_endpoint_listen(struct hy_endpoint *ret, struct hy_err *err);
void hy_endpoint_format(const struct hy_endpoint *e, char text[HY_ENDPOINT_TEXT]);
int hy_endpoint_parse(const char *text, struct hy_endpoint *ret); /* -EPROTO: invalid */

/*
 * Connects to rank 0 as `rank` (not 0) of `size`, trying each address for a few seconds: a descriptor, -EACCES for a
 * server with a different key, or the error of the last address, with a message.
 */
int hy_endpoint_dial(const struct hy_endpoint *e, unsigned rank, unsigned size, struct hy_err *err);

/* The key of the mesh in one generation; derived on both sides, so that it is not transmitted. */
void hy_endpoint_mesh_key(const struct hy_endpoint *e, uint64_t generation, uint8_t ret[HY_HANDSHAKE_KEY]);

#endif
