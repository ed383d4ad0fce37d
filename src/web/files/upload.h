/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Uploads: a file that arrives in pieces.
 *
 * The received bytes are in a hidden file next to the target, ".hopyard-HASH.upload", whose length is the only state of
 * the upload: it can continue after a restart of the server or the browser. The hash is of the target's path and the
 * size and time of the file in the browser, so the same file continues its upload and another file starts a new one.
 * The last piece renames it to the target.
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
