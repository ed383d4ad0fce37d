/* SPDX-License-Identifier: Apache-2.0 */
/* The file system of local files. */
#ifndef HY_FS_LOCAL_H
#define HY_FS_LOCAL_H

struct hy_fs_backend;

extern const struct hy_fs_backend hy_fs_local;

#endif
