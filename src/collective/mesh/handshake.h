/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mutual authentication of two ranks on a connection: bytes in, bytes out, no sockets.
 *
 *     dialer                                             acceptor
 *     HELLO      "hymesh1\0"  from  to  size  channel
 *                (u32 each, little-endian)  nonce (32)   ->
 *                <-  CHALLENGE  nonce (32)  HMAC("accepts!" HELLO nonce) (32)
 *     PROOF      HMAC("dialled!" HELLO nonce) (32)       ->
 *
 * Both MACs cover both nonces and both ranks, so neither can be replayed to any rank, and a rank cannot be made to
 * answer its own challenge. The dialer may send data right after the PROOF.
 */
#ifndef HY_COLLECTIVE_HANDSHAKE_H
#define HY_COLLECTIVE_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HY_HANDSHAKE_KEY 32
#define HY_HANDSHAKE_NONCE 32
#define HY_HELLO_SIZE 56
#define HY_CHALLENGE_SIZE 64
#define HY_PROOF_SIZE 32

struct hy_handshake {
    uint32_t peer, channel; /* read-only; for an acceptor valid after the HELLO */
    uint8_t out[HY_CHALLENGE_SIZE]; /* to be sent now */
    size_t out_size;                /* the caller resets it to 0 */

    const uint8_t *key; /* private from here */
    uint32_t rank, size, channels;
    size_t awaited, have;
    bool dialer, greeted;
    uint8_t hello[HY_HELLO_SIZE];
    uint8_t nonce[HY_HANDSHAKE_NONCE];
    uint8_t in[HY_CHALLENGE_SIZE];
};

/* `key` (HY_HANDSHAKE_KEY bytes) is not copied and must last. The nonce must be fresh. */
void hy_handshake_dial(struct hy_handshake *h, const uint8_t *key, uint32_t rank, uint32_t size, uint32_t peer,
                       uint32_t channel, const uint8_t nonce[HY_HANDSHAKE_NONCE]);
/* Accepts any higher rank below `size`, and any channel below `channels`. */
void hy_handshake_accept(struct hy_handshake *h, const uint8_t *key, uint32_t rank, uint32_t size, uint32_t channels,
                         const uint8_t nonce[HY_HANDSHAKE_NONCE]);

/* How many bytes it can take now; further bytes do not belong to the handshake. */
size_t hy_handshake_needed(const struct hy_handshake *h);
/*
 * Processes n <= hy_handshake_needed() bytes. 0: more is needed; 1: the peer is authenticated (`out` must still be
 * sent); -EPROTO: not a handshake, or one for another rank; -EACCES: a different key.
 */
int hy_handshake_take(struct hy_handshake *h, const uint8_t *bytes, size_t n);

#endif
