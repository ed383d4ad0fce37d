/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fs: files by URL.
 *
 * The same calls for local files ("/data/x", "file:///data/x") and for files of
 * other file systems, which register under their scheme (src/hdfs:
 * "hdfs://namenode/x"). Calls block, are thread-safe, and retry for a while when
 * a server does not answer; an event loop makes them in a thread pool.
 *
 * All return 0 (or a documented value) or -Exxx with a message in `err`: -ENOENT,
 * -EEXIST, -EACCES, -ENOTDIR, -EISDIR, -ENOTEMPTY, -EROFS (safe mode), -EDQUOT and
 * -ENOSPC have the meaning they have for open(2) and its family.
 */
#ifndef HY_FS_H
#define HY_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hy_err;

/* ---- URLs: pure functions over text -------------------------------------------------- */

/* Length of the scheme; 0 for a path. A single letter is not a scheme ("C:/x"), nor is one without a slash ("a:b"). */
size_t hy_url_scheme(const char *url);

/* A path, or "file:/…". */
bool hy_url_is_local(const char *url);

/* Length of the prefix that precedes the first directory name: "hdfs://host:8020/" of "hdfs://host:8020/a/b", "/" of
 * "/a", "" of "a/b". */
size_t hy_url_root(const char *url);

/* Offset and length of the last name; the length is 0 when there is none, as in "/". Ignores trailing slashes. */
size_t hy_url_name(const char *url, size_t *ret_length);

/* The parent directory ("." for "a"; "/" for "/"); NULL when out of memory. */
char *hy_url_parent(const char *url);

/* "hdfs://host/a" and "b" make "hdfs://host/a/b"; NULL when out of memory. */
char *hy_fs_join(const char *url, const char *name);

/* The path of a local URL, without trailing slashes: "link/" would name the target of the link. */
int hy_fs_local_path(const char *url, char **ret, struct hy_err *err);

/* Opens a local path with O_PATH, component by component. Follows no link: -ELOOP. */
int hy_fs_open_exact(const char *path);

/* ---- files and directories ----------------------------------------------------------- */

/* Attributes of a file or directory. hy_fs_info_done frees its strings. */
struct hy_fs_info {
    char *name; /* the last component of its path */
    char *owner, *group;
    uint64_t size; /* 0 for a directory */
    uint64_t block_size;
    int64_t modified_ms, accessed_ms; /* since 1970; 0: unknown */
    uint32_t replication;             /* 0 for a directory */
    unsigned mode;                    /* the lowest 12 bits of st_mode */
    bool is_dir, is_link;
    bool is_special; /* a FIFO, a socket or a device */
};

void hy_fs_info_done(struct hy_fs_info *info);
#define hy_cleanup_fs_info __attribute__((cleanup(hy_fs_info_done)))

int hy_fs_stat(const char *url, struct hy_fs_info *ret, struct hy_err *err);
/* Calls `visit` for each entry of a directory, sorted by name; stops at the first result that is not 0 and returns it.
 * `visit` may take strings out of `entry` (hy_take); the rest is freed. */
typedef int hy_fs_visit(void *arg, struct hy_fs_info *entry, struct hy_err *err);
int hy_fs_list(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *err);

/* Also creates missing parents; an existing directory is not an error. */
int hy_fs_mkdirs(const char *url, unsigned mode, struct hy_err *err);
/* -ENOTEMPTY for a directory that is not empty, unless `recursive`. */
int hy_fs_remove(const char *url, bool recursive, struct hy_err *err);
/* Within one file system. -EEXIST when `to` exists, unless `replace` is set and it is a file or an empty directory. */
int hy_fs_rename(const char *from, const char *to, bool replace, struct hy_err *err);
int hy_fs_chmod(const char *url, unsigned mode, struct hy_err *err);
/* NULL leaves the owner or group unchanged. */
int hy_fs_chown(const char *url, const char *owner, const char *group, struct hy_err *err);
/* `how`: R_OK, W_OK, X_OK or F_OK. -EACCES when the access is denied. */
int hy_fs_access(const char *url, int how, struct hy_err *err);

/* Totals of a file or directory tree, including its root. */
struct hy_fs_usage {
    uint64_t bytes, files, directories;
    uint64_t stored; /* bytes on disk: all replicas */
};
int hy_fs_usage(const char *url, struct hy_fs_usage *ret, struct hy_err *err);

/* Bytes of the whole file system. */
struct hy_fs_space {
    uint64_t capacity, used, free;
};
int hy_fs_space(const char *url, struct hy_fs_space *ret, struct hy_err *err);

/* ---- access control lists --------------------------------------------------------------- */

/*
 * The rights of a file beyond its mode: POSIX ACLs locally, those of HDFS there. A
 * list is complete: it has the entries of owner, group and others, which are the
 * mode. With named entries there is a mask, which limits these and the group's entry.
 * The entries of a directory with `is_default` are copied to what is created in it.
 */
enum hy_fs_acl_kind { HY_FS_ACL_USER, HY_FS_ACL_GROUP, HY_FS_ACL_MASK, HY_FS_ACL_OTHER }; /* the numbers of HDFS */

struct hy_fs_acl_entry {
    enum hy_fs_acl_kind kind;
    bool is_default;
    unsigned perm; /* R_OK | W_OK | X_OK */
    char *name;    /* of a user or group: a name on HDFS, a number locally; NULL: the owner, or the file's group */
};

#define HY_FS_ACL_MAX 1024u /* entries */

struct hy_fs_acl {
    struct hy_fs_acl_entry *list;
    size_t count;
    char *group;         /* of the file */
    bool drops_default; /* by hy_fs_acl_drop_default: to be removed from the file */
};

void hy_fs_acl_done(struct hy_fs_acl *acl);
#define hy_cleanup_fs_acl __attribute__((cleanup(hy_fs_acl_done)))

/* Symbolic links are not followed, anywhere in a local path (-ELOOP). -ENOTSUP: the file system has no ACLs. */
int hy_fs_acl_get(const char *url, struct hy_fs_acl *ret, struct hy_err *err);
int hy_fs_acl_set(const char *url, const struct hy_fs_acl *acl, struct hy_err *err);
/* The name of this user in entries of ACLs on the file system of `url`. Free it. -EINVAL: unknown user. */
int hy_fs_acl_user_name(const char *url, const char *user, char **ret, struct hy_err *err);
/* The names of the user's groups in lists; none where they are unknown, as on HDFS. */
struct hy_string_list;
int hy_fs_acl_groups(const char *url, const char *user, struct hy_string_list *ret, struct hy_err *err);

/*
 * Visits a directory and everything below it, a directory before its contents. Locally each file is opened first and
 * its list is changed through that descriptor; links, sockets and devices are left out.
 */
struct hy_fs_acl_node {
    const char *path; /* relative to the top, which is "" */
    bool is_dir;
    bool is_executable; /* by its owner */
    bool is_foreign;    /* it does not belong to the owner of the top, who may not change its list */
    struct hy_fs_acl acl;
};
/* 0, 1 to write node->acl back, or -Exxx, which ends the walk. */
typedef int hy_fs_acl_visit(void *arg, struct hy_fs_acl_node *node, struct hy_err *err);
int hy_fs_acl_walk(const char *url, hy_fs_acl_visit *visit, void *arg, struct hy_err *err);

/* Pure: changes of a list. No other user's effective rights change. */

/* The rights of this user's own entry, as far as the mask allows them; -ENOENT: it has none. */
int hy_fs_acl_user(const struct hy_fs_acl *acl, bool is_default, const char *name);
/* The rights of a user of these groups without an entry of its own: those of its groups, or of others. */
unsigned hy_fs_acl_others(const struct hy_fs_acl *acl, const struct hy_string_list *groups);
/* Sets the user's entry to `perm`, or removes it (-1). A directory without default entries gets those of its mode, too.
 * 1: changed, 0: unchanged, or -ENOMEM, -E2BIG. */
int hy_fs_acl_set_user(struct hy_fs_acl *acl, bool is_default, const char *name, int perm);
bool hy_fs_acl_has_default(const struct hy_fs_acl *acl);
void hy_fs_acl_drop_default(struct hy_fs_acl *acl);
/* Adds a copy of the name. 0, -ENOMEM, or -E2BIG. */
int hy_fs_acl_add(struct hy_fs_acl *acl, enum hy_fs_acl_kind kind, bool is_default, const char *name, unsigned perm);

/* ---- open files: for one thread at a time, except hy_fs_pread ------------------------- */

struct hy_fs_file;

enum hy_fs_open_mode {
    HY_FS_READ,
    HY_FS_WRITE, /* replaces an existing file */
    HY_FS_CREATE, /* -EEXIST when the file exists */
    HY_FS_APPEND, /* creates the file when it does not exist */
};
int hy_fs_open(const char *url, enum hy_fs_open_mode mode, struct hy_fs_file **ret, struct hy_err *err);

/* Open for reading: the length at the time of the open. Open for writing: the length so far. */
uint64_t hy_fs_size(const struct hy_fs_file *f);
/* Returns the number of bytes read: fewer than n only at the end of the file. Sequential reads are fast; several
 * threads may read at different offsets at once. */
int64_t hy_fs_pread(struct hy_fs_file *f, void *into, size_t n, uint64_t offset, struct hy_err *err);

/* Writes all n bytes or fails. After a failure only hy_fs_close is allowed, and it returns the same error. */
int hy_fs_write(struct hy_fs_file *f, const void *bytes, size_t n, struct hy_err *err);
/* Makes everything written so far visible to readers that open the file now; with `to_disk` it also survives a power
 * failure. */
int hy_fs_flush(struct hy_fs_file *f, bool to_disk, struct hy_err *err);
/* Frees `f` in any case. 0 means that everything was written. */
int hy_fs_close(struct hy_fs_file *f, struct hy_err *err);

/* ---- atomic files --------------------------------------------------------------------- */

/*
 * A file that appears complete or not at all. Until it is committed it has the
 * name ".NAME.1f0a…._COPYING_" in the same directory. Other programs ignore that
 * suffix, which is the one of Hadoop's shell; the random number keeps concurrent
 * writers of one file apart.
 */
struct hy_fs_atomic_file {
    struct hy_fs_file *file; /* for hy_fs_write */
    char *url; /* read-only: the temporary name */
    char *target; /* private */
};

int hy_fs_atomic_file_open(struct hy_fs_atomic_file *f, const char *target, struct hy_err *err);
/* Closes the file and renames it to its target. -EEXIST when the target exists, unless `replace`. Ends `f` in any case:
 * on an error the temporary file is removed. */
int hy_fs_atomic_file_commit(struct hy_fs_atomic_file *f, bool replace, struct hy_err *err);
/* Removes the temporary file. Does nothing when `f` has ended. */
void hy_fs_atomic_file_abort(struct hy_fs_atomic_file *f);

/* A temporary name for a file or directory `target`; NULL when out of memory. */
char *hy_fs_temporary_name(const char *target);

/* ---- copies, walks, patterns ----------------------------------------------------------- */

struct hy_fs_copy {
    bool replace; /* existing files */
    bool recursive; /* copy directories, too */
    int (*progress)(void *arg, uint64_t more_bytes); /* may be NULL; a result other than 0 stops the copy */
    void *arg;
};
/* Like `cp`: into `to` when that is a directory. Each copy is atomic: it is written under a temporary name. */
int hy_fs_copy(const char *from, const char *to, const struct hy_fs_copy *how, struct hy_err *err);

#define HY_FS_PATH_MAX 32768u /* bytes of a path below the top of a walk or a copy */

struct hy_fs_walk {
    /* `path`: relative to the top. A result other than 0 stops the walk and is returned; a visitor that clears
     * entry->is_dir skips that directory. It may take strings out of `entry`. */
    int (*visit)(void *arg, const char *path, struct hy_fs_info *entry, struct hy_err *err);
    /* A directory below the top cannot be listed: 0 skips it. NULL: the walk fails. */
    int (*failed)(void *arg, struct hy_err *err);
    void *arg;
    int links_max; /* links to directories followed on the way to one entry before -ELOOP; 0: follows none */
};
/* Visits everything below a directory: sorted by name, a directory before its contents. Depth and memory are bounded:
 * -ENAMETOOLONG for more than 1,000 nested directories, -E2BIG for more pending entries than it may hold. */
int hy_fs_walk(const char *url, const struct hy_fs_walk *how, struct hy_err *err);

/* Calls `match` with the URL of each match, sorted; `*`, `?`, `[…]`, `{a,b}` as in Hadoop's shell. A pattern without
 * any of these matches nothing when the path does not exist. */
typedef int hy_fs_match(void *arg, const char *url, const struct hy_fs_info *info, struct hy_err *err);
int hy_fs_glob(const char *pattern, hy_fs_match *match, void *arg, struct hy_err *err);
/* Whether a name matches a pattern without slashes; false for an invalid pattern and when out of memory. */
bool hy_fs_glob_matches(const char *pattern, const char *name);

/* ---- confined directories ---------------------------------------------------------------- */

/*
 * Paths in a directory cannot leave it: in a local directory no link below it is
 * followed, not even one that another process creates in the meantime. Each directory on
 * the way is opened relative to its parent, and files are named by a descriptor,
 * "/proc/self/fd/N/NAME". Other file systems use plain URLs. -EINVAL for paths that
 * are absolute or contain empty parts, "." or "..".
 */
struct hy_fs_confined_dir {
    const char *url; /* all fields are private */
    int top; /* -1: not local */
    int last; /* what was opened last, or -1 */
    char *path; /* of `last`, relative to the top */
};

/* Borrows `url`. `is_ours`: the caller has just created it, so a link in its place is an attack. */
int hy_fs_confined_dir_open(struct hy_fs_confined_dir *d, const char *url, bool is_ours, struct hy_err *err);
/* The same for a directory that is open already (O_PATH), which it closes; -1: it is not local. */
void hy_fs_confined_dir_take(struct hy_fs_confined_dir *d, const char *url, int top);
void hy_fs_confined_dir_done(struct hy_fs_confined_dir *d);
#define hy_cleanup_confined_dir __attribute__((cleanup(hy_fs_confined_dir_done)))

/* A URL for the existing directory `path`, or for an entry of an existing directory; "" is the top. Valid until the
 * next call. -ENOTDIR when the path contains a link or a file. */
int hy_fs_confined_dir_path(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err);
int hy_fs_confined_dir_entry(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err);
/* The same for an existing file or directory, to read it. -EPERM when it is a link, a FIFO, a socket or a device. */
int hy_fs_confined_dir_existing(struct hy_fs_confined_dir *d, const char *path, char **ret_url, struct hy_err *err);

/* Replaces the descriptor path in an error message by the user's path. */
void hy_fs_confined_dir_explain(const struct hy_fs_confined_dir *d, struct hy_err *err);

/* ---- mirrors: a remote directory that follows a local one ------------------------------ */

/*
 * Files that grow (TensorBoard's events, logs) are appended to, so that others
 * can read them while they are written; any other file is copied after it has not
 * changed for a few seconds, and at the end. Files removed locally stay in the
 * mirror. The local directory is authoritative: after any error the next sync
 * repairs the mirror.
 *
 * Calls block; a mirror is for one thread at a time.
 */
struct hy_fs_mirror;

/* `is_skipped` selects files to leave out, by their relative path; NULL: none. NULL when out of memory. */
struct hy_fs_mirror *hy_fs_mirror_new(const char *directory, const char *url, bool (*is_skipped)(const char *path));
/* A sync that finds more than this many bytes in all files together stops there, with -EFBIG. */
void hy_fs_mirror_limit(struct hy_fs_mirror *m, uint64_t bytes);
/* Also closes the remote files that are still open; their content so far stays. */
void hy_fs_mirror_free(struct hy_fs_mirror *m);

/*
 * One pass. With `is_last` everything is sent and all files are closed. Returns
 * 0 or the first error; files without an error are done. -ENAMETOOLONG, for
 * directories that are nested too deep, recurs at the next sync.
 */
int hy_fs_mirror_sync(struct hy_fs_mirror *m, bool is_last, struct hy_err *err);

/* ---- interrupts ------------------------------------------------------------------------- */

/*
 * While a call waits (for a NameNode that is down, for a slow response), it calls
 * `is_interrupted` at least once a second and after every signal; a result other
 * than 0 ends the call with -EINTR. For Python, whose signal handlers only run
 * when the interpreter is called.
 */
void hy_fs_on_wait(int (*is_interrupted)(void));

/* ---- for implementations of file systems ------------------------------------------------ */

struct hy_fs_file_ops {
    uint64_t (*size)(const struct hy_fs_file *f);
    int64_t (*pread)(struct hy_fs_file *f, void *into, size_t n, uint64_t offset, struct hy_err *err);
    int (*write)(struct hy_fs_file *f, const void *bytes, size_t n, struct hy_err *err);
    int (*flush)(struct hy_fs_file *f, bool to_disk, struct hy_err *err);
    int (*close)(struct hy_fs_file *f, struct hy_err *err);
};

struct hy_fs_file { /* the first member of an implementation's struct */
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
    int (*space)(const char *url, struct hy_fs_space *ret, struct hy_err *err);
    int (*open)(const char *url, enum hy_fs_open_mode mode, struct hy_fs_file **ret, struct hy_err *err);
    int (*acl_get)(const char *url, struct hy_fs_acl *ret, struct hy_err *err);
    int (*acl_set)(const char *url, const struct hy_fs_acl *acl, struct hy_err *err);
    int (*acl_groups)(const char *user, struct hy_string_list *ret, struct hy_err *err); /* NULL: unknown */
    int (*acl_user_name)(const char *url, const char *user, char **ret, struct hy_err *err);
    int (*acl_walk)(const char *url, hy_fs_acl_visit *visit, void *arg, struct hy_err *err);
};

/* Call it at program start, before any other call. `scheme`: "hdfs". The backend is not copied. */
void hy_fs_add(const char *scheme, const struct hy_fs_backend *backend);
/* For `acl_walk`, by the other functions. */
int hy_fs_acl_walk_urls(const char *url, hy_fs_acl_visit *visit, void *arg, struct hy_err *err);
/* Whether a waiting call should end: the result of the callback of hy_fs_on_wait, or 0. */
int hy_fs_is_interrupted(void);

#endif
