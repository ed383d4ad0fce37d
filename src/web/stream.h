/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream of bytes: TCP or a unix socket, plain or with TLS.
 *
 * The functions are libuv's, and so are their callbacks, whose handle has the stream's data. With TLS, callers read and
 * write plain text; a plain stream only calls libuv. Encryption is on the loop: 64 KB at a time, after which the loop
 * serves other connections. A stream with TLS has at most that much encrypted data in memory, however much is written.
 */
#ifndef HY_WEB_STREAM_H
#define HY_WEB_STREAM_H

#include <openssl/types.h>
#include <uv.h>

enum {
    HY_STREAM_ROOM = 65536, /* what `alloc` has to provide; less is an error (UV_ENOBUFS) */
    HY_STREAM_PARTS = 2     /* buffers of one write */
};

struct hy_stream; /* opaque */

/* `tls`: the context of a server; NULL: plain. NULL when out of memory. */
struct hy_stream *hy_stream_new_tcp(uv_loop_t *loop, SSL_CTX *tls);
struct hy_stream *hy_stream_new_pipe(uv_loop_t *loop);
/* Frees it when libuv has closed its handle and called `closed`, which may be NULL. */
void hy_stream_close(struct hy_stream *s, uv_close_cb closed);
void hy_stream_set_data(struct hy_stream *s, void *data);

/* Takes the connection on success. 0 or -Exxx. */
int hy_stream_open(struct hy_stream *s, int fd);
/* Connects a unix socket. */
void hy_stream_connect(struct hy_stream *s, uv_connect_t *c, const char *path, uv_connect_cb connected);

/*
 * With TLS, the end of the handshake is a read of 0 bytes. A handshake that fails is UV_EPROTO; the client has been
 * sent the reason. If the end of the stream arrived with the bytes before, this calls `read` at once.
 */
int hy_stream_read_start(struct hy_stream *s, uv_alloc_cb alloc, uv_read_cb read);
void hy_stream_read_stop(struct hy_stream *s);
/* One write at a time. The bytes must stay valid until `written` is called. */
int hy_stream_write(struct hy_stream *s, uv_write_t *w, const uv_buf_t *parts, unsigned count, uv_write_cb written);
/* Shuts down the sending side: with TLS the receiver can distinguish this from an aborted connection. */
int hy_stream_shutdown(struct hy_stream *s, uv_shutdown_t *r, uv_shutdown_cb shut);

#endif
