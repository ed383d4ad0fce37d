/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/mesh/handshake.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/text.h"
#include "collective/mesh/sha256.h"

#define MAGIC_SIZE 8

static const uint8_t magic[MAGIC_SIZE] = "hymesh1";

/* The signed bytes include the role of the signer, so that a MAC cannot be reflected to its sender. */
static void sign(const struct hy_handshake *h, bool dialer, const uint8_t *nonce, uint8_t mac[HY_SHA256_SIZE])
{
    uint8_t bytes[MAGIC_SIZE + HY_HELLO_SIZE + HY_HANDSHAKE_NONCE];

    memcpy(bytes, dialer ? "dialled!" : "accepts!", MAGIC_SIZE);
    memcpy(bytes + MAGIC_SIZE, h->hello, HY_HELLO_SIZE);
    memcpy(bytes + MAGIC_SIZE + HY_HELLO_SIZE, nonce, HY_HANDSHAKE_NONCE);
    hy_hmac_sha256(h->key, HY_HANDSHAKE_KEY, bytes, sizeof bytes, mac);
}

static void append_out(struct hy_handshake *h, const void *bytes, size_t n)
{
    memcpy(h->out + h->out_size, bytes, n);
    h->out_size += n;
}

static void await(struct hy_handshake *h, size_t n)
{
    h->awaited = n;
    h->have = 0;
}

void hy_handshake_dial(struct hy_handshake *h, const uint8_t *key, uint32_t rank, uint32_t size, uint32_t peer,
                       uint32_t channel, const uint8_t nonce[HY_HANDSHAKE_NONCE])
{
    *h =
        (struct hy_handshake){.peer = peer, .channel = channel, .key = key, .rank = rank, .size = size, .dialer = true};
    memcpy(h->hello, magic, MAGIC_SIZE);
    hy_put_le(h->hello + 8, rank, 4);
    hy_put_le(h->hello + 12, peer, 4);
    hy_put_le(h->hello + 16, size, 4);
    hy_put_le(h->hello + 20, channel, 4);
    memcpy(h->hello + 24, nonce, HY_HANDSHAKE_NONCE);
    append_out(h, h->hello, sizeof h->hello);
    await(h, HY_CHALLENGE_SIZE);
}

void hy_handshake_accept(struct hy_handshake *h, const uint8_t *key, uint32_t rank, uint32_t size, uint32_t channels,
                         const uint8_t nonce[HY_HANDSHAKE_NONCE])
{
    *h = (struct hy_handshake){.key = key, .rank = rank, .size = size, .channels = channels};
    memcpy(h->nonce, nonce, HY_HANDSHAKE_NONCE);
    await(h, HY_HELLO_SIZE);
}

/* In the acceptor. */
static int on_hello(struct hy_handshake *h)
{
    uint8_t mac[HY_SHA256_SIZE];

    memcpy(h->hello, h->in, HY_HELLO_SIZE);
    h->peer = (uint32_t)hy_get_le(h->hello + 8, 4);
    h->channel = (uint32_t)hy_get_le(h->hello + 20, 4);
    if (memcmp(h->hello, magic, MAGIC_SIZE) != 0 || hy_get_le(h->hello + 12, 4) != h->rank ||
        hy_get_le(h->hello + 16, 4) != h->size || h->peer <= h->rank || h->peer >= h->size || h->channel >= h->channels)
        return -EPROTO;
    h->greeted = true;
    sign(h, false, h->nonce, mac);
    append_out(h, h->nonce, sizeof h->nonce);
    append_out(h, mac, sizeof mac);
    await(h, HY_PROOF_SIZE);
    return 0;
}

static int on_challenge(struct hy_handshake *h)
{
    uint8_t mac[HY_SHA256_SIZE];

    sign(h, false, h->in, mac);
    if (!hy_mac_equal(mac, h->in + HY_HANDSHAKE_NONCE))
        return -EACCES;
    sign(h, true, h->in, mac);
    append_out(h, mac, sizeof mac);
    await(h, 0);
    return 1;
}

static int on_proof(struct hy_handshake *h)
{
    uint8_t mac[HY_SHA256_SIZE];

    sign(h, true, h->nonce, mac);
    await(h, 0);
    return hy_mac_equal(mac, h->in) ? 1 : -EACCES;
}

size_t hy_handshake_needed(const struct hy_handshake *h)
{
    return h->awaited - h->have;
}

int hy_handshake_take(struct hy_handshake *h, const uint8_t *bytes, size_t n)
{
    assert(n <= hy_handshake_needed(h));
    memcpy(h->in + h->have, bytes, n);
    h->have += n;
    /* The first bytes of a HELLO are fixed, so that garbage is rejected without waiting for more. */
    if (!h->dialer && !h->greeted && memcmp(h->in, magic, h->have < MAGIC_SIZE ? h->have : MAGIC_SIZE) != 0)
        return -EPROTO;
    if (h->have < h->awaited)
        return 0;
    if (h->dialer)
        return on_challenge(h);
    return h->greeted ? on_proof(h) : on_hello(h);
}
