/* SPDX-License-Identifier: Apache-2.0 */
/* Directories as tar archives, which are sent while they are created. */
#ifndef HY_WEB_ARCHIVE_H
#define HY_WEB_ARCHIVE_H

#include "base/buf.h"
#include "web/exchange.h"

struct hy_served_dir;

/* Replies with the directory `path`; links and special files are left out, and hopyard's own. */
void hy_archive_reply(struct hy_exchange *x, struct hy_served_dir *p, const char *path);

/* A file or directory as tar describes it. */
struct hy_tar_entry {
    const char *path;
    uint64_t size;
    int64_t modified_ms;
    unsigned mode;
    bool is_dir;
};
/* Appends its header: POSIX ustar, with an extended header where a path or size does not fit. 0 or -ENOMEM. */
int hy_tar_append_header(struct hy_buf *b, const struct hy_tar_entry *e);

#endif
