/* SPDX-License-Identifier: Apache-2.0 */
/* A local socket that answers each message with itself, and clients of it. */
#ifndef HY_TESTS_WIRE_ROOM_H
#define HY_TESTS_WIRE_ROOM_H

#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "wire/local.h"
#include "wire_cluster.h"

struct folder {
    char path[64], file[96];
};

static inline int folder_setup(struct folder *f)
{
    snprintf(f->path, sizeof f->path, "/tmp/hopyard-wire-XXXXXX");
    if (!mkdtemp(f->path))
        return -1;
    snprintf(f->file, sizeof f->file, "%s/file", f->path);
    return 0;
}

struct room { /* a listening end that answers each message with itself */
    uv_loop_t loop;
    struct hy_local *local;
    struct folder folder;
    int opens, closes, messages;
    int says_more; /* each answer comes so often, and then the end */
    size_t most_pending;
    struct hy_local_conn *conn;
};

static inline void room_open(void *arg, struct hy_local_conn *c)
{
    struct room *r = arg;

    r->opens++;
    r->conn = c;
    hy_local_set_data(c, r);
}

static inline void room_message(void *arg, struct hy_local_conn *c, const uint8_t *bytes, size_t n)
{
    struct room *r = arg;

    assert_ptr_equal(hy_local_data(c), r);
    r->messages++;
    if (hy_local_send(c, bytes, n) < 0) {
        hy_local_end(c);
        return;
    }
    for (int i = 0; i < r->says_more; i++)
        (void)hy_local_send(c, bytes, n);
    if (r->most_pending < hy_local_pending(c))
        r->most_pending = hy_local_pending(c);
    if (r->says_more)
        hy_local_end(c);
}

static inline void room_close(void *arg, struct hy_local_conn *c)
{
    struct room *r = arg;

    r->closes++;
    if (r->conn == c)
        r->conn = NULL;
}

static const struct hy_local_events room_events = {room_open, room_message, room_close};

static inline int room_init(struct room *r)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(folder_setup(&r->folder), 0);
    return hy_local_listen(&r->loop, r->folder.file, &room_events, r, &r->local, NULL);
}

static inline void room_done(struct room *r)
{
    hy_local_close(r->local);
    uv_run(&r->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    assert_int_equal(r->opens, r->closes);
    assert_int_not_equal(access(r->folder.file, F_OK), 0);
    if (hy_remove_tree(r->folder.path) < 0) /* a fault that is armed may hit it, once */
        assert_int_equal(hy_remove_tree(r->folder.path), 0);
}

/* The blocking end runs in a thread of its own. */
struct visitor {
    uv_thread_t thread;
    uv_async_t done;
    const char *path;
    int (*visit)(int fd, struct hy_buf *rest, struct hy_buf *message);
    int rc;
    int finished;
};

static inline void visitor_main(void *arg)
{
    struct visitor *v = arg;
    hy_cleanup_buf struct hy_buf rest, message;
    hy_cleanup_close int fd = hy_local_connect(v->path, NULL);

    hy_buf_init(&rest, SIZE_MAX);
    hy_buf_init(&message, SIZE_MAX);
    v->rc = fd < 0 ? fd : v->visit(fd, &rest, &message);
    uv_async_send(&v->done);
}

static inline void visitor_done(uv_async_t *a)
{
    struct visitor *v = a->data;

    v->finished = 1;
    uv_close((uv_handle_t *)a, NULL);
}

static inline int room_visit(struct room *r, int (*visit)(int fd, struct hy_buf *rest, struct hy_buf *message))
{
    struct visitor v = {.path = r->folder.file, .visit = visit};

    v.done.data = &v;
    assert_int_equal(uv_async_init(&r->loop, &v.done, visitor_done), 0);
    assert_int_equal(uv_thread_create(&v.thread, visitor_main, &v), 0);
    while (!v.finished)
        uv_run(&r->loop, UV_RUN_ONCE);
    uv_thread_join(&v.thread);
    return v.rc;
}

static inline int say_and_hear(int fd, struct hy_buf *rest, struct hy_buf *message, size_t n)
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

static inline int visit_sizes(int fd, struct hy_buf *rest, struct hy_buf *message)
{
    static const size_t sizes[] = {0, 1, 5, 4096, 100000, HY_LOCAL_MAX, 7};
    uint8_t byte = 0;

    for (size_t i = 0; i < HY_COUNT(sizes); i++) {
        int rc = say_and_hear(fd, rest, message, sizes[i]);

        if (rc < 0)
            return rc;
    }
    if (hy_local_put(fd, &byte, HY_LOCAL_MAX + 1) != -EMSGSIZE)
        return -EBADMSG;
    return hy_local_get(fd, rest, message, 0) == -EAGAIN ? 0 : -EBADMSG;
}

#endif
