/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads: a file that arrives in pieces.
 *
 * What has arrived is a hidden file beside the target, ".hopyard-HASH.upload", and its length is the state of the
 * upload: so it continues after a restart of the server, and of the browser. The hash is that of the target's path, and
 * of the size and time of the file in the browser, so that the same file continues and another one starts anew. The
 * last piece renames it.
 */
#ifndef HY_WEB_UPLOAD_H
#define HY_WEB_UPLOAD_H

#include <stdbool.h>
#include <stdint.h>

struct hy_fs_info;

enum { HY_UPLOAD_PIECE_MAX = 8 << 20 };

/* Whether an entry of a directory is a part of an upload that was not continued for a day. */
bool hy_upload_is_abandoned(const struct hy_fs_info *entry, int64_t now_ms);

#endif
