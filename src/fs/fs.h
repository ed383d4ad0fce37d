/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs: files by URL.
 *
 * The same calls for files of this machine ("/data/x", "file:///data/x") and
 * for those of other file systems, which are added under their scheme (src/hdfs:
 * "hdfs://namenode/x"). Calls block, may be made by any thread, and wait out a
 * short absence of the other side by themselves; who lives in a loop makes them
 * in a thread pool.
 *
 * All return 0 (or what they say) or -Exxx with a sentence in `err`: -ENOENT,
 * -EEXIST, -EACCES, -ENOTDIR, -EISDIR, -ENOTEMPTY, -EROFS (safe mode), -EDQUOT,
 * -ENOSPC mean everywhere what they mean to open(2) and its family.
 */
#ifndef HY_FS_H
#define HY_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_err;

/* What is known about a file or a folder. hy_fs_info_done frees what it holds. */
struct hy_fs_info {
    char *name; /* the last part of its path */
    char *owner, *group;
    uint64_t size; /* of a folder: 0 */
    uint64_t block_size;
    int64_t modified_ms, accessed_ms; /* since 1970; 0: not known */
    uint32_t replication;             /* of a folder: 0 */
    unsigned mode;                    /* the lowest 12 bits of st_mode */
    bool is_dir, is_link;
};

void hy_fs_info_done(struct hy_fs_info *info);
#define hy_cleanup_fs_info __attribute__((cleanup(hy_fs_info_done)))

int hy_fs_stat(const char *url, struct hy_fs_info *ret, struct hy_err *err);
/* Calls `visit` for each entry of a folder, in the order of names; stops at the first answer that is not 0
 * and returns it. `entry` may be taken apart (hy_take), the rest of it is freed. */
typedef int hy_fs_visit(void *arg, struct hy_fs_info *entry, struct hy_err *err);
int hy_fs_list(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *err);

/* With the folders on its way; one that is there already is fine. */
int hy_fs_mkdirs(const char *url, unsigned mode, struct hy_err *err);
/* -ENOTEMPTY for a folder with something in it, unless `recursive`. */
int hy_fs_remove(const char *url, bool recursive, struct hy_err *err);
/* Within one file system. -EEXIST when `to` is there, unless `replace` and it is a file or an empty folder. */
int hy_fs_rename(const char *from, const char *to, bool replace, struct hy_err *err);
int hy_fs_chmod(const char *url, unsigned mode, struct hy_err *err);
/* NULL leaves it. */
int hy_fs_chown(const char *url, const char *owner, const char *group, struct hy_err *err);
/* `how`: R_OK, W_OK, X_OK or F_OK; -EACCES when it may not be done. */
int hy_fs_access(const char *url, int how, struct hy_err *err);

/* How much there is below a file or folder, itself included. */
struct hy_fs_usage {
    uint64_t bytes, files, folders;
    uint64_t stored; /* bytes on disks: all replicas */
};
int hy_fs_usage(const char *url, struct hy_fs_usage *ret, struct hy_err *err);

/* Of the whole file system, in bytes. */
struct hy_fs_room {
    uint64_t capacity, used, free;
};
int hy_fs_room(const char *url, struct hy_fs_room *ret, struct hy_err *err);

/* ---- open files: each is used by one thread at a time, but for hy_fs_pread ---- */

struct hy_fs_file;

enum hy_fs_how {
    HY_FS_READ,
    HY_FS_WRITE,  /* what was there is replaced */
    HY_FS_CREATE, /* -EEXIST when something is there */
    HY_FS_APPEND, /* a new file where there is none */
};
int hy_fs_open(const char *url, enum hy_fs_how how, struct hy_fs_file **ret, struct hy_err *err);

/* What was opened to read: the length it had then. What is written: all of it so far. */
uint64_t hy_fs_size(const struct hy_fs_file *f);
/* How many bytes came: fewer than n only at the end of the file. Reading on where the last call ended is fast;
 * threads may read different places at once. */
int64_t hy_fs_pread(struct hy_fs_file *f, void *into, size_t n, uint64_t offset, struct hy_err *err);

/* All of it, or an error; after an error only hy_fs_close helps, and it will say the same. */
int hy_fs_write(struct hy_fs_file *f, const void *bytes, size_t n, struct hy_err *err);
/* All that was written can be read by others who open it now; with `to_disk` it survives a power cut, too. */
int hy_fs_flush(struct hy_fs_file *f, bool to_disk, struct hy_err *err);
/* Frees it in any case. 0 means that all that was written is there. */
int hy_fs_close(struct hy_fs_file *f, struct hy_err *err);

/* ---- made of the above ---- */

struct hy_fs_copy {
    bool replace;                                    /* what is in the way */
    bool recursive;                                  /* folders, too */
    int (*progress)(void *arg, uint64_t more_bytes); /* may be NULL; not 0 stops with that */
    void *arg;
};
/* Like `cp`: into `to` when that is a folder. A copy is there whole or not at all: it is made under another name. */
int hy_fs_copy(const char *from, const char *to, const struct hy_fs_copy *how, struct hy_err *err);

#define HY_FS_PATH_MAX 32768u /* bytes of a path below the top of a walk or a copy */

struct hy_fs_walk {
    /* `path`: below the top. Not 0 stops the walk with that; a visitor that clears entry->is_dir keeps it out of that
     * folder. `entry` may be taken apart. */
    int (*visit)(void *arg, const char *path, struct hy_fs_info *entry, struct hy_err *err);
    /* A folder below the top cannot be listed: 0 goes on with the next. NULL: the walk fails. */
    int (*failed)(void *arg, struct hy_err *err);
    void *arg;
    int links_max; /* how many links to folders are followed to one entry, before it is -ELOOP; 0: none is followed */
};
/* Visits all that lies below a folder: by name, and a folder before what is in it. Depth and memory are bounded:
 * -ENAMETOOLONG for more than 1,000 folders in each other, -E2BIG for more waiting entries than it may hold. */
int hy_fs_walk(const char *url, const struct hy_fs_walk *how, struct hy_err *err);

/* Calls `visit` with the URL of each match, in order; `*`, `?`, `[…]`, `{a,b}` as Hadoop's shell has them. A
 * pattern without any of these that is not there matches nothing. */
typedef int hy_fs_match(void *arg, const char *url, const struct hy_fs_info *info, struct hy_err *err);
int hy_fs_glob(const char *pattern, hy_fs_match *match, void *arg, struct hy_err *err);

/* "hdfs://host/a" and "b" make "hdfs://host/a/b"; NULL when out of memory. */
char *hy_fs_join(const char *url, const char *name);

/*
 * While a call waits (for a NameNode that is away, for a slow answer), it asks
 * this at least once a second and whenever a signal came; not 0 ends the call
 * with -EINTR. For Python, whose handlers run only when it is asked to.
 */
void hy_fs_on_wait(int (*is_to_stop)(void));

/* ---- for who adds a file system ---- */

struct hy_fs_file_ops {
    uint64_t (*size)(const struct hy_fs_file *f);
    int64_t (*pread)(struct hy_fs_file *f, void *into, size_t n, uint64_t offset, struct hy_err *err);
    int (*write)(struct hy_fs_file *f, const void *bytes, size_t n, struct hy_err *err);
    int (*flush)(struct hy_fs_file *f, bool to_disk, struct hy_err *err);
    int (*close)(struct hy_fs_file *f, struct hy_err *err);
};

struct hy_fs_file { /* an open file's struct begins with it */
    const struct hy_fs_file_ops *ops;
};

struct hy_fs_backend {
    int (*stat)(const char *url, struct hy_fs_info *ret, struct hy_err *err);
    int (*list)(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *err);
    int (*mkdirs)(const char *url, unsigned mode, struct hy_err *err);
    int (*remove)(const char *url, bool recursive, struct hy_err *err);
    int (*rename)(const char *from, const char *to, bool replace, struct hy_err *err);
    int (*chmod)(const char *url, unsigned mode, struct hy_err *err);
    int (*chown)(const char *url, const char *owner, const char *group, struct hy_err *err);
    int (*access)(const char *url, int how, struct hy_err *err);
    int (*usage)(const char *url, struct hy_fs_usage *ret, struct hy_err *err);
    int (*room)(const char *url, struct hy_fs_room *ret, struct hy_err *err);
    int (*open)(const char *url, enum hy_fs_how how, struct hy_fs_file **ret, struct hy_err *err);
};

/* At a program's start, before the first call. `scheme`: "hdfs". The backend is not copied. */
void hy_fs_add(const char *scheme, const struct hy_fs_backend *backend);
/* What hy_fs_on_wait was given: 0 to go on. */
int hy_fs_is_to_stop(void);

#endif
