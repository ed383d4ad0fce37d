/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validates the listings of a NameNode before a caller sees them: callers join names
 * to local paths and collect them in memory. Pure, so that it can be tested without
 * a server.
 */
#ifndef HY_HDFS_LISTING_H
#define HY_HDFS_LISTING_H

#include <stdint.h>

#include "hdfs.pb-c.h"

#define HY_HDFS_NAME_MAX 4096u         /* bytes; the default limit of HDFS is 255 */
#define HY_HDFS_DIRECTORY_MAX 6400000u    /* entries; no NameNode can be configured to allow more in one directory */
#define HY_HDFS_LISTING_MAX (1u << 29) /* bytes of all names, owners and groups of one directory */

struct hy_err;

/* One directory, page by page. Starts as all zero. */
struct hy_hdfs_listing {
    char *after;                     /* read-only: the name that the next page begins after; NULL: from the start */
    uint64_t pages, entries, bytes;  /* private */
    char *mark;                      /* private: an earlier `after` */
};

void hy_hdfs_listing_done(struct hy_hdfs_listing *l);
#define hy_cleanup_hdfs_listing __attribute__((cleanup(hy_hdfs_listing_done)))

/*
 * Takes the next page of the directory `url`. Returns 1 when another page
 * follows, 0 when this was the last, -ENOTDIR when it is the listing of a file,
 * -EPROTO when no correct NameNode sends such a page, or -ENOMEM.
 */
int hy_hdfs_listing_page(struct hy_hdfs_listing *l, const Hdfs__DirectoryListing *page, const char *url,
                         struct hy_err *err);

/* -EPROTO for sizes that do not fit into signed numbers. `url`: the file's, or that of its directory. */
int hy_hdfs_check_sizes(const Hdfs__FileStatus *s, const char *url, struct hy_err *err);

#endif
