/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The security layer of a connection (RFC 4422): signs or encrypts its bytes. It is
 * below hy_hdfs_sock_*, transparent to the callers. One thread may send while
 * another receives.
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

/* Messages wrapped by SASL, each after its length of 4 bytes. Takes `s` on success. NULL when out of memory. */
struct hy_hdfs_security_layer *hy_hdfs_security_layer_sasl_new(struct hy_hdfs_sasl *s);
/* AES in counter mode. Takes both on success. */
struct hy_hdfs_security_layer *hy_hdfs_security_layer_aes_new(struct hy_hdfs_aes *in, struct hy_hdfs_aes *out);
void hy_hdfs_security_layer_free(struct hy_hdfs_security_layer *s); /* NULL is fine */

/* For sock.c: like the calls of sock.h. */
ssize_t hy_hdfs_security_layer_recvv(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, struct iovec *into,
                                     int count);
int hy_hdfs_security_layer_send_all(struct hy_hdfs_security_layer *s, struct hy_hdfs_sock *sock, struct iovec *from,
                                    int count);
/* Decrypted bytes are available without a receive. */
bool hy_hdfs_security_layer_has_pending(const struct hy_hdfs_security_layer *s);

#endif
