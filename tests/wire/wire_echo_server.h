/* SPDX-License-Identifier: Apache-2.0 */
/* An echo server on a local socket, and its clients. */
#ifndef HY_TESTS_WIRE_ECHO_SERVER_H
#define HY_TESTS_WIRE_ECHO_SERVER_H

#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "wire/local.h"
#include "wire_cluster.h"

struct temp_dir {
    char path[64], file[96];
};

static inline int temp_dir_make(struct temp_dir *f)
{
    snprintf(f->path, sizeof f->path, "/tmp/hopyard-wire-XXXXXX");
    if (!mkdtemp(f->path))
        return -1;
    snprintf(f->file, sizeof f->file, "%s/file", f->path);
    return 0;
}

struct echo_server {
    uv_loop_t loop;
    struct hy_local *local;
    struct temp_dir dir;
    int opens, closes, messages;
    int repeats; /* sends each reply this many more times, and closes */
    size_t most_pending;
    struct hy_local_conn *conn;
};

static inline void echo_open(void *arg, struct hy_local_conn *c)
{
    struct echo_server *r = arg;

    r->opens++;
    r->conn = c;
    hy_local_set_data(c, r);
}

static inline void echo_message(void *arg, struct hy_local_conn *c, const uint8_t *bytes, size_t n)
{
    struct echo_server *r = arg;

    assert_ptr_equal(hy_local_data(c), r);
    r->messages++;
    if (hy_local_send(c, bytes, n) < 0) {
        hy_local_end(c);
        return;
    }
    for (int i = 0; i < r->repeats; i++)
        (void)hy_local_send(c, bytes, n);
    if (r->most_pending < hy_local_pending(c))
        r->most_pending = hy_local_pending(c);
    if (r->repeats)
        hy_local_end(c);
}

static inline void echo_close(void *arg, struct hy_local_conn *c)
{
    struct echo_server *r = arg;

    r->closes++;
    if (r->conn == c)
        r->conn = NULL;
}

static const struct hy_local_events echo_events = {echo_open, echo_message, echo_close};

static inline int echo_init(struct echo_server *r)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(temp_dir_make(&r->dir), 0);
    return hy_local_listen(&r->loop, r->dir.file, &echo_events, r, &r->local, NULL);
}

static inline void echo_done(struct echo_server *r)
{
    hy_local_close(r->local);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    assert_int_equal(r->opens, r->closes);
    assert_int_not_equal(access(r->dir.file, F_OK), 0);
    if (hy_remove_tree(r->dir.path) < 0) /* an injected fault may fail it once */
        assert_int_equal(hy_remove_tree(r->dir.path), 0);
}

/* The blocking client needs a separate thread. */
struct client_thread {
    uv_thread_t thread;
    uv_async_t done;
    const char *path;
    int (*run)(int fd, struct hy_buf *rest, struct hy_buf *message);
    int rc;
    int finished;
};

static inline void client_main(void *arg)
{
    struct client_thread *v = arg;
    hy_cleanup_buf struct hy_buf rest, message;
    hy_cleanup_close int fd = hy_local_connect(v->path, NULL);

    hy_buf_init(&rest, SIZE_MAX);
    hy_buf_init(&message, SIZE_MAX);
    v->rc = fd < 0 ? fd : v->run(fd, &rest, &message);
    uv_async_send(&v->done);
}

static inline void client_done(uv_async_t *a)
{
    struct client_thread *v = a->data;

    v->finished = 1;
    uv_close((uv_handle_t *)a, NULL);
}

static inline int echo_run_client(struct echo_server *r,
                                  int (*run)(int fd, struct hy_buf *rest, struct hy_buf *message))
{
    struct client_thread v = {.path = r->dir.file, .run = run};

    v.done.data = &v;
    assert_int_equal(uv_async_init(&r->loop, &v.done, client_done), 0);
    assert_int_equal(uv_thread_create(&v.thread, client_main, &v), 0);
    while (!v.finished)
        uv_run(&r->loop, UV_RUN_ONCE);
    uv_thread_join(&v.thread);
    return v.rc;
}

static inline int echo_and_compare(int fd, struct hy_buf *rest, struct hy_buf *message, size_t n)
{
    uint8_t *bytes = malloc(n + 1);
    int rc;

    if (!bytes)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        bytes[i] = data_byte(3, i);
    rc = hy_local_put(fd, bytes, n);
    if (rc == 0)
        rc = hy_local_get(fd, rest, message, -1);
    if (rc == 1)
        rc = message->len == n && (n == 0 || memcmp(hy_buf_bytes(message), bytes, n) == 0) ? 0 : -EBADMSG;
    free(bytes);
    return rc;
}

static inline int client_sends_all_sizes(int fd, struct hy_buf *rest, struct hy_buf *message)
{
    static const size_t sizes[] = {0, 1, 5, 4096, 100000, HY_LOCAL_MAX, 7};
    uint8_t byte = 0;

    for (size_t i = 0; i < HY_COUNT(sizes); i++) {
        int rc = echo_and_compare(fd, rest, message, sizes[i]);

        if (rc < 0)
            return rc;
    }
    if (hy_local_put(fd, &byte, HY_LOCAL_MAX + 1) != -EMSGSIZE)
        return -EBADMSG;
    return hy_local_get(fd, rest, message, 0) == -EAGAIN ? 0 : -EBADMSG;
}

#endif
