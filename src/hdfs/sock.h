/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blocking TCP connection whose calls are bounded: they end with -ETIMEDOUT after
 * `timeout_ms` without progress, and with -EINTR when hy_fs_is_interrupted.
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
    int timeout_ms;
    struct hy_hdfs_security_layer *layer; /* NULL: plain (security_layer.h) */
    bool has_small_buffer;
};

/* Whether a numeric address belongs to this machine. */
bool hy_hdfs_sock_is_local_address(const char *address);
/* `host` is a name or an address. */
int hy_hdfs_sock_connect(struct hy_hdfs_sock *s, const char *host, unsigned port, int connect_ms, int timeout_ms,
                         struct hy_err *err);
/* The same for a unix socket. */
int hy_hdfs_sock_connect_local(struct hy_hdfs_sock *s, const char *path, int timeout_ms);
void hy_hdfs_sock_close(struct hy_hdfs_sock *s);

/* Receives 1 to n bytes; -ECONNRESET at the end of the stream. */
ssize_t hy_hdfs_sock_recv(struct hy_hdfs_sock *s, void *into, size_t n);
ssize_t hy_hdfs_sock_recvv(struct hy_hdfs_sock *s, struct iovec *into, int count);
int hy_hdfs_sock_recv_all(struct hy_hdfs_sock *s, void *into, size_t n);
/*
 * Enlarges the receive buffer, for a caller that works between two reads. On
 * loopback the sender copies the data into our socket; with a large buffer a
 * DataNode sends the header and data of each packet separately and does all of that
 * work. So a local connection starts with a small buffer: the sender only queues, we
 * copy whole segments when we read, and both sides share the work. A caller that
 * does something else in between gains more from data that is already here.
 */
void hy_hdfs_sock_widen(struct hy_hdfs_sock *s);
/* Waits up to `ms`: 1 when data is available or the stream has ended, else 0. */
int hy_hdfs_sock_poll(const struct hy_hdfs_sock *s, int ms);
/* Sends everything. Changes `from`. */
int hy_hdfs_sock_send_all(struct hy_hdfs_sock *s, struct iovec *from, int count);

/* The same without the security layer, for security_layer.c. */
ssize_t hy_hdfs_sock_recvv_raw(struct hy_hdfs_sock *s, struct iovec *into, int count);
int hy_hdfs_sock_send_raw(struct hy_hdfs_sock *s, struct iovec *from, int count);

/* Receives `count` descriptors with a byte; close-on-exec. -EPROTO unless all arrive. Only on unix sockets. */
int hy_hdfs_sock_recv_fds(struct hy_hdfs_sock *s, int *fds, size_t count);

/* 0, or -EINTR as above. */
int hy_hdfs_sock_sleep(int ms);

#endif
