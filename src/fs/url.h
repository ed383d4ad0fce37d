/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a URL's text; nothing is looked up. */
#ifndef HY_FS_URL_H
#define HY_FS_URL_H

#include <stdbool.h>
#include <stddef.h>

/* A path, or "file:/…". */
bool hy_url_is_local(const char *url);

/* How long the part is that has no names of folders in it: "hdfs://host:8020/" of "hdfs://host:8020/a/b", "/" of
 * "/a", nothing of "a/b". */
size_t hy_url_root(const char *url);

/* Where the last name begins, and how long it is; 0: there is none, as in "/". Slashes behind it do not count. */
size_t hy_url_name(const char *url, size_t *ret_length);

/* The folder that it lies in ("." for "a"; "/" for "/"); NULL when out of memory. */
char *hy_url_parent(const char *url);

#endif
