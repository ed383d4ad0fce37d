/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hopyard fs cat` and `tail`. Data is copied unchanged, in chunks. SIGPIPE and
 * Ctrl-C terminate the program by default: there is nothing to clean up.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/fs/commands.h"
#include "fs/fs.h"

#define PIECE (1u << 20)
#define POLL_MS 1000 /* between two reads of tail -f */

/* Prints the file from `*at` to its end. 1: the output was closed. */
static int print_rest(struct hy_fs_file *f, uint64_t *at, char *room, struct hy_err *err)
{
    for (;;) {
        int64_t got = hy_fs_pread(f, room, PIECE, *at, err);
        int rc;

        if (got <= 0)
            return (int)got;
        rc = hy_write_all(STDOUT_FILENO, room, (size_t)got);
        if (rc < 0)
            return rc == -EPIPE ? 1 : hy_err_sys(err, rc, "cannot print");
        *at += (uint64_t)got;
    }
}

static int close_read(struct hy_fs_file *f, int rc)
{
    struct hy_err unheard = {0};

    if (hy_fs_close(f, &unheard) < 0)
        unheard.code = 0; /* everything has been read */
    return rc;
}

static int cat(void *arg, const char *url, struct hy_err *err)
{
    struct hy_fs_file *f = NULL;
    uint64_t at = 0;
    int rc = hy_fs_open(url, HY_FS_READ, &f, err);

    return rc < 0 ? rc : close_read(f, print_rest(f, &at, arg, err));
}

int hy_files_print(const struct hy_urls *urls)
{
    hy_cleanup_free char *room = hy_malloc(PIECE);
    struct hy_err err = {0};

    if (room)
        return hy_files_each(urls, cat, room);
    hy_err_oom(&err);
    return hy_files_print_error(&err);
}

int hy_files_cat(const struct hy_args *args)
{
    hy_cleanup_urls struct hy_urls urls = {0};
    int status = hy_files_expand(args, 0, args->word_count, false, &urls);

    return hy_files_print(&urls) == HY_EXIT_OK ? status : HY_EXIT_FAILED;
}

/* ---- tail -------------------------------------------------------------------------- */

struct tail {
    char *room;
    uint64_t bytes, at;
    bool follow, begun;
};

/* Opens the file for each read: an open HDFS file does not see data that others append. */
static int print_new(struct tail *t, const char *url, struct hy_err *err)
{
    struct hy_fs_file *f = NULL;
    int rc = hy_fs_open(url, HY_FS_READ, &f, err);
    uint64_t size;

    if (rc < 0)
        return rc;
    size = hy_fs_size(f);
    if (!t->begun)
        t->at = size > t->bytes ? size - t->bytes : 0;
    else if (size < t->at)
        t->at = 0; /* the file was truncated or replaced */
    t->begun = true;
    return close_read(f, print_rest(f, &t->at, t->room, err));
}

static int tail(void *arg, const char *url, struct hy_err *err)
{
    struct tail *t = arg;
    int rc = print_new(t, url, err);

    while (rc == 0 && t->follow) {
        poll(NULL, 0, POLL_MS);
        rc = print_new(t, url, err);
    }
    return rc;
}

int hy_files_tail(const struct hy_args *args)
{
    hy_cleanup_free char *room = hy_malloc(PIECE);
    struct tail t = {.room = room, .bytes = 1024, .follow = hy_args_has(args, "follow")};
    const char *bytes = hy_args_get(args, "bytes");
    struct hy_err err = {0};

    if (bytes && hy_parse_size(bytes, &t.bytes) < 0) {
        hy_err_set(&err, -EINVAL, "-c takes a number of bytes such as 500 or 64K, not '%s'", bytes);
        hy_files_print_error(&err);
        return HY_EXIT_USAGE;
    }
    if (!room) {
        hy_err_oom(&err);
        return hy_files_print_error(&err);
    }
    return hy_files_each_word(args, 0, tail, &t);
}
