/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blocking TCP connection whose calls end: after `patience_ms` of silence
 * with -ETIMEDOUT, and with -EINTR when hy_fs_on_wait's answer says so.
 */
#ifndef HY_HDFS_SOCK_H
#define HY_HDFS_SOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct hy_err;
struct hy_hdfs_security_layer;

struct hy_hdfs_sock {
    int fd; /* -1: none */
    int patience_ms;
    struct hy_hdfs_security_layer *seal; /* under which bytes travel (security_layer.h); NULL: as they are */
    bool is_narrow;
};

/* Whether an address, in digits, is one of this machine's. */
bool hy_hdfs_sock_is_local_address(const char *address);
/* `host` is a name or an address. Fails with a sentence that names it. */
int hy_hdfs_sock_connect(struct hy_hdfs_sock *s, const char *host, unsigned port, int connect_ms, int patience_ms,
                    struct hy_err *err);
/* The same over a unix socket; without a sentence. */
int hy_hdfs_sock_connect_local(struct hy_hdfs_sock *s, const char *path, int patience_ms);
void hy_hdfs_sock_close(struct hy_hdfs_sock *s);

/* What has come, at least a byte and at most n; -ECONNRESET at the end of the stream. */
ssize_t hy_hdfs_sock_recv(struct hy_hdfs_sock *s, void *into, size_t n);
ssize_t hy_hdfs_sock_recvv(struct hy_hdfs_sock *s, struct iovec *into, int count);
int hy_hdfs_sock_recv_all(struct hy_hdfs_sock *s, void *into, size_t n);
/*
 * For who works between two reads. What a peer on this machine sends is worked
 * into our socket in its own time; through a wide window a DataNode sends each
 * packet's head and data for themselves, and has all of that work. So a
 * connection to this machine is narrow at first: the peer only queues, we move
 * whole segments when we read, and both are busy for as long. When we are not,
 * it is better that more is here.
 */
void hy_hdfs_sock_widen(struct hy_hdfs_sock *s);
/* 1 when something has come, or the stream has ended; waits `ms` for it. */
int hy_hdfs_sock_poll(const struct hy_hdfs_sock *s, int ms);
/* All of it. Changes `from`. */
int hy_hdfs_sock_send_all(struct hy_hdfs_sock *s, struct iovec *from, int count);

/* The same, past the seal: for security_layer.c. */
ssize_t hy_hdfs_sock_recvv_raw(struct hy_hdfs_sock *s, struct iovec *into, int count);
int hy_hdfs_sock_send_raw(struct hy_hdfs_sock *s, struct iovec *from, int count);

/* So many descriptors, with a byte; close-on-exec. All of them or none: -EPROTO. Only by hy_hdfs_sock_connect_local. */
int hy_hdfs_sock_recv_fds(struct hy_hdfs_sock *s, int *fds, size_t count);

/* Waits; -EINTR as above. */
int hy_hdfs_sock_sleep(int ms);

#endif
