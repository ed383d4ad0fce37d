/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two ranks come to trust a connection: bytes in, bytes out, no sockets.
 *
 *     dialler                                            acceptor
 *     HELLO      "hymesh1\0"  from  to  size  channel
 *                (u32 each, little-endian)  nonce (32)   ->
 *                <-  CHALLENGE  nonce (32)  HMAC("accepts!" HELLO nonce) (32)
 *     PROOF      HMAC("dialled!" HELLO nonce) (32)       ->
 *
 * Both MACs cover both nonces and both ranks, so neither can be played again,
 * to anyone, and a rank cannot be made to answer its own challenge. Behind the
 * PROOF the dialler may send at once.
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
    uint32_t peer, channel; /* read-only: of an acceptor known once its HELLO is there */
    uint8_t out[HY_CHALLENGE_SIZE]; /* to be sent now */
    size_t out_size;                /* the caller makes it 0 again */

    const uint8_t *key; /* private from here */
    uint32_t rank, size, channels;
    size_t awaited, have;
    bool dialer, greeted;
    uint8_t hello[HY_HELLO_SIZE];
    uint8_t nonce[HY_HANDSHAKE_NONCE];
    uint8_t in[HY_CHALLENGE_SIZE];
};

/* `key` (HY_HANDSHAKE_KEY bytes) stays the caller's and must last. The nonce must be fresh. */
void hy_handshake_dial(struct hy_handshake *h, const uint8_t *key, uint32_t rank, uint32_t size, uint32_t peer,
                       uint32_t channel, const uint8_t nonce[HY_HANDSHAKE_NONCE]);
/* Will take any higher rank below `size`, and any channel below `channels`. */
void hy_handshake_accept(struct hy_handshake *h, const uint8_t *key, uint32_t rank, uint32_t size,
                         uint32_t channels, const uint8_t nonce[HY_HANDSHAKE_NONCE]);

/* How many bytes it may be given now: what lies behind is not its own. */
size_t hy_handshake_needed(const struct hy_handshake *h);
/*
 * Gives it n <= hy_handshake_needed() bytes. 0: more is needed; 1: the other end is who it says it is (send what is
 * in `out` all the same); -EPROTO: this is no handshake, or one for somebody else; -EACCES: another key.
 */
int hy_handshake_take(struct hy_handshake *h, const uint8_t *bytes, size_t n);

#endif
