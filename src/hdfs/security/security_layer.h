/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a connection's bytes unreadable, or at least not to be forged, on
 * their way: under hy_sock_*, so that nobody above knows. One thread at a time
 * may send, and one receive, both at once.
 */
#ifndef HY_HDFS_SEAL_H
#define HY_HDFS_SEAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct hy_aes;
struct hy_sasl;
struct hy_seal;
struct hy_sock;

/* SASL's wrapped pieces, each behind its length of 4 bytes. Takes `s` when it succeeds. NULL when out of memory. */
struct hy_seal *hy_seal_sasl_new(struct hy_sasl *s);
/* Every byte by AES in counter mode. Takes both when it succeeds. */
struct hy_seal *hy_seal_aes_new(struct hy_aes *in, struct hy_aes *out);
void hy_seal_free(struct hy_seal *s); /* NULL is fine */

/* For sock.c: as the calls of sock.h. */
ssize_t hy_seal_recvv(struct hy_seal *s, struct hy_sock *sock, struct iovec *into, int count);
int hy_seal_send_all(struct hy_seal *s, struct hy_sock *sock, struct iovec *from, int count);
/* There are bytes that came already. */
bool hy_seal_has_bytes(const struct hy_seal *s);

#endif
