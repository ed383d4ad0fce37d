/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a connection's bytes unreadable, or at least not to be forged, on
 * their way: under hy_hdfs_sock_*, so that nobody above knows. One thread at a time
 * may send, and one receive, both at once.
 */
#ifndef HY_HDFS_SECURITY_SECURITY_LAYER_H
#define HY_HDFS_SECURITY_SECURITY_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct hy_hdfs_aes;
struct hy_hdfs_sasl;
struct hy_hdfs_security_layer;
struct hy_hdfs_sock;

/* SASL's wrapped pieces, each behind its length of 4 bytes. Takes `s` when it succeeds. NULL when out of memory. */
struct hy_hdfs_security_layer *hy_hdfs_security_layer_sasl_new(struct hy_hdfs_sasl *s);
/* Every byte by AES in counter mode. Takes both when it succeeds. */
struct hy_hdfs_security_layer *hy_hdfs_security_layer_aes_new(struct hy_hdfs_aes *in, struct hy_hdfs_aes *out);
void hy_hdfs_security_layer_free(struct hy_hdfs_security_layer *s); /* NULL is fine */

/* For sock.c: as the calls of sock.h. */
ssize_t hy_hdfs_security_layer_recvv(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, struct iovec *into, int count);
int hy_hdfs_security_layer_send_all(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, struct iovec *from, int count);
/* There are bytes that came already. */
bool hy_hdfs_security_layer_has_pending(const struct hy_hdfs_security_layer *s);

#endif
