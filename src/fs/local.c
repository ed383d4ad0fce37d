/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local files: "/data/x", "data/x", "file:///data/x", "file:/data/x".
 *
 * Links are followed, except by remove, rename and usage: the target of a link
 * may belong to someone else.
 */
#include "fs/local.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "base/text.h"
#include "fs/acl.h"
#include "fs/fs.h"

int hy_fs_local_path(const char *url, char **ret, struct hy_err *err)
{
    const char *path = strncmp(url, "file:/", 6) == 0 ? url + 5 : url;
    size_t n;

    if (path != url && strncmp(path, "//", 2) == 0) {
        size_t host = strcspn(path + 2, "/");

        if (host && (host != 9 || memcmp(path + 2, "localhost", 9) != 0))
            return hy_err_set(err, -EINVAL, "%s is on another machine; use file:///PATH for a local file", url);
        path += 2 + host;
    }
    n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    *ret = hy_strndup(path, n);
    return *ret ? 0 : hy_err_oom(err);
}

static int failed(struct hy_err *err, int code, const char *doing, const char *url)
{
    return hy_err_sys(err, code, "cannot %s %s", doing, url);
}

/* The same for an operation on an existing file. */
static int failed_existing(struct hy_err *err, int code, const char *doing, const char *url)
{
    return code == -ENOENT ? hy_err_set(err, code, "%s does not exist", url) : failed(err, code, doing, url);
}

/* ---- users and groups -------------------------------------------------------------- */

union account {
    struct passwd user;
    struct group group;
};

typedef int lookup(const void *key, union account *ret, char *buffer, size_t size, void **found);

static int user_by_id(const void *key, union account *ret, char *buffer, size_t size, void **found)
{
    return getpwuid_r(*(const uid_t *)key, &ret->user, buffer, size, (struct passwd **)found);
}

static int user_by_name(const void *key, union account *ret, char *buffer, size_t size, void **found)
{
    return getpwnam_r(key, &ret->user, buffer, size, (struct passwd **)found);
}

static int group_by_id(const void *key, union account *ret, char *buffer, size_t size, void **found)
{
    return getgrgid_r(*(const gid_t *)key, &ret->group, buffer, size, (struct group **)found);
}

static int group_by_name(const void *key, union account *ret, char *buffer, size_t size, void **found)
{
    return getgrnam_r(key, &ret->group, buffer, size, (struct group **)found);
}

#define ACCOUNT_MAX (1u << 20) /* bytes; a group lists its members */

/* 1 and the account, whose strings are in *ret_buffer; 0 when it does not exist. */
static int find_account(lookup *by, const void *key, union account *ret, char **ret_buffer)
{
    for (size_t size = 1024; size <= ACCOUNT_MAX; size *= 4) {
        char *buffer = hy_malloc(size);
        void *found = NULL;
        int error;

        if (!buffer)
            return -ENOMEM;
        error = by(key, ret, buffer, size, &found);
        if (found) {
            *ret_buffer = buffer;
            return 1;
        }
        free(buffer);
        if (error == 0 || error == ENOENT || error == ESRCH)
            return 0;
        if (error != ERANGE)
            return -error;
    }
    return -ERANGE;
}

/* Caches the last names: a lookup reads a file or asks a directory service, and most files of a directory have the same
 * owner. */
struct owners {
    uid_t uid;
    gid_t gid;
    char *owner, *group;
};

static void owners_done(struct owners *o)
{
    free(o->owner);
    free(o->group);
}

#define cleanup_owners __attribute__((cleanup(owners_done)))

/* Falls back to the number when the account has no name. */
static char *name_of(lookup *by, const void *key, unsigned id)
{
    hy_cleanup_free char *buffer = NULL;
    union account a;

    if (find_account(by, key, &a, &buffer) == 1)
        return hy_strdup(by == user_by_id ? a.user.pw_name : a.group.gr_name);
    return hy_asprintf("%u", id);
}

static void update_owners(struct owners *o, const struct stat *st)
{
    if (!o->owner || o->uid != st->st_uid) {
        free(o->owner);
        o->owner = name_of(user_by_id, &st->st_uid, st->st_uid);
        o->uid = st->st_uid;
    }
    if (!o->group || o->gid != st->st_gid) {
        free(o->group);
        o->group = name_of(group_by_id, &st->st_gid, st->st_gid);
        o->gid = st->st_gid;
    }
}

/* ---- attributes and listings ----------------------------------------------------------------- */

static int64_t to_ms(struct timespec t)
{
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int to_info(const struct stat *st, const char *name, bool is_link, struct owners *owners, struct hy_fs_info *ret,
                   struct hy_err *err)
{
    const bool is_dir = S_ISDIR(st->st_mode);

    update_owners(owners, st);
    *ret = (struct hy_fs_info){
        .name = hy_strdup(name),
        .owner = owners->owner ? hy_strdup(owners->owner) : NULL,
        .group = owners->group ? hy_strdup(owners->group) : NULL,
        .size = is_dir ? 0 : (uint64_t)st->st_size,
        .block_size = (uint64_t)st->st_blksize,
        .modified_ms = to_ms(st->st_mtim),
        .accessed_ms = to_ms(st->st_atim),
        .replication = is_dir ? 0 : 1,
        .mode = st->st_mode & 07777,
        .is_dir = is_dir,
        .is_link = is_link,
        .is_special = !is_dir && !S_ISREG(st->st_mode) && !S_ISLNK(st->st_mode),
    };
    if (ret->name && ret->owner && ret->group)
        return 0;
    hy_fs_info_done(ret);
    return hy_err_oom(err);
}

/* Follows a link, except a dangling one. */
static int stat_target(int directory, const char *path, struct stat *ret, bool *ret_is_link)
{
    struct stat target;

    if (HY_SYS(fstatat(directory, path, ret, AT_SYMLINK_NOFOLLOW)) < 0)
        return -errno;
    *ret_is_link = S_ISLNK(ret->st_mode);
    if (*ret_is_link && fstatat(directory, path, &target, 0) == 0)
        *ret = target;
    return 0;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash && slash[1] ? slash + 1 : path;
}

static int local_stat(const char *url, struct hy_fs_info *ret, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    cleanup_owners struct owners owners = {0};
    struct stat st;
    bool is_link = false;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    rc = stat_target(AT_FDCWD, path, &st, &is_link);
    if (rc < 0)
        return failed_existing(err, rc, "read the attributes of", url);
    return to_info(&st, last_part(path), is_link, &owners, ret, err);
}

static int read_names(DIR *d, struct hy_string_list *ret)
{
    struct dirent *e;
    int rc = 0;

    while (rc == 0 && (errno = 0, e = readdir(d)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            rc = hy_string_list_add(ret, e->d_name);
    if (rc == 0 && errno)
        rc = -errno;
    hy_string_list_sort(ret);
    return rc;
}

static int visit_name(int directory, const char *url, const char *name, struct owners *owners, hy_fs_visit *visit,
                      void *arg, struct hy_err *err)
{
    struct hy_fs_info info;
    struct stat st;
    bool is_link = false;
    int rc = stat_target(directory, name, &st, &is_link);

    if (rc == -ENOENT) /* removed since the names were read */
        return 0;
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot read the attributes of %s in %s", name, url);
    rc = to_info(&st, name, is_link, owners, &info, err);
    if (rc < 0)
        return rc;
    rc = visit(arg, &info, err);
    hy_fs_info_done(&info);
    return rc;
}

static int local_list(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    cleanup_owners struct owners owners = {0};
    hy_cleanup_string_list struct hy_string_list names = {0};
    int fd;
    DIR *d;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    fd = HY_SYS(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0 && errno == ENOTDIR)
        return hy_err_set(err, -ENOTDIR, "%s is a file, not a directory", url);
    if (fd < 0)
        return failed_existing(err, -errno, "list", url);
    d = fdopendir(fd);
    rc = d ? read_names(d, &names) : -errno;
    if (rc < 0)
        failed(err, rc, "list", url);
    for (size_t i = 0; i < names.count && rc == 0; i++)
        rc = visit_name(fd, url, names.items[i], &owners, visit, arg, err);
    if (d)
        closedir(d);
    else
        close(fd);
    return rc;
}

static int local_access(const char *url, int how, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    /* With the effective ids, as open(2). */
    return HY_SYS(faccessat(AT_FDCWD, path, how, AT_EACCESS)) < 0 ? failed_existing(err, -errno, "access", url) : 0;
}

/* ---- changes ----------------------------------------------------------------------- */

static int local_mkdirs(const char *url, unsigned mode, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    rc = hy_mkdirs(path, mode);
    return rc < 0 ? failed(err, rc, "create the directory", url) : 0;
}

static int remove_one(const char *path, bool is_dir)
{
    if (HY_SYS(is_dir ? rmdir(path) : unlink(path)) == 0)
        return 0;
    return is_dir && errno == EEXIST ? -ENOTEMPTY : -errno; /* POSIX allows both */
}

static int local_remove(const char *url, bool recursive, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    struct stat st;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    if (HY_SYS(lstat(path, &st)) < 0)
        return failed_existing(err, -errno, "remove", url);
    rc = recursive && S_ISDIR(st.st_mode) ? hy_remove_tree(path) : remove_one(path, S_ISDIR(st.st_mode));
    return rc < 0 ? failed(err, rc, "remove", url) : 0;
}

/* Falls back to a check that is not atomic where the file system has no RENAME_NOREPLACE. */
static int rename_without_replacing(const char *from, const char *to)
{
    struct stat st;

    if (HY_SYS(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return -errno;
    if (lstat(to, &st) == 0)
        return -EEXIST;
    return HY_SYS(rename(from, to)) < 0 ? -errno : 0;
}

static int rename_replacing(const char *from, const char *to)
{
    if (HY_SYS(rename(from, to)) == 0)
        return 0;
    return errno == EEXIST ? -ENOTEMPTY : -errno;
}

static int local_rename(const char *from, const char *to, bool replace, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL, *target = NULL;
    int rc = hy_fs_local_path(from, &path, err);

    if (rc == 0)
        rc = hy_fs_local_path(to, &target, err);
    if (rc < 0)
        return rc;
    rc = replace ? rename_replacing(path, target) : rename_without_replacing(path, target);
    if (rc == -EEXIST)
        return hy_err_set(err, rc, "cannot rename %s: %s already exists", from, to);
    if (rc == -EXDEV)
        return hy_err_set(err, rc, "%s and %s are on different file systems; copy instead", from, to);
    return rc < 0 ? hy_err_sys(err, rc, "cannot rename %s to %s", from, to) : 0;
}

static int local_chmod(const char *url, unsigned mode, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    return HY_SYS(chmod(path, mode & 07777)) < 0 ? failed_existing(err, -errno, "change the mode of", url) : 0;
}

/* The id of a name, or a number. NULL gives -1: unchanged. */
static int id_of(lookup *by, const char *name, unsigned *ret, struct hy_err *err)
{
    const char *what = by == user_by_name ? "user" : "group";
    hy_cleanup_free char *buffer = NULL;
    union account a;
    uint64_t number;
    int rc;

    *ret = (unsigned)-1;
    if (!name)
        return 0;
    rc = find_account(by, name, &a, &buffer);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot look up the %s '%s'", what, name);
    if (rc == 1)
        *ret = by == user_by_name ? a.user.pw_uid : a.group.gr_gid;
    else if (hy_parse_u64(name, &number) == 0 && number < UINT_MAX)
        *ret = (unsigned)number;
    else
        return hy_err_set(err, -EINVAL, "unknown %s '%s'", what, name);
    return 0;
}

static int local_chown(const char *url, const char *owner, const char *group, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    unsigned uid, gid;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    rc = id_of(user_by_name, owner, &uid, err);
    if (rc == 0)
        rc = id_of(group_by_name, group, &gid, err);
    if (rc < 0)
        return rc;
    return HY_SYS(chown(path, uid, gid)) < 0 ? failed_existing(err, -errno, "change the owner of", url) : 0;
}

#define GROUPS_MAX 65536 /* as the kernel */

static int add_groups(const struct passwd *user, struct hy_string_list *ret)
{
    hy_cleanup_free gid_t *list = hy_reallocarray(NULL, GROUPS_MAX, sizeof *list);
    int count = GROUPS_MAX, rc = list ? 0 : -ENOMEM;

    if (rc == 0 && getgrouplist(user->pw_name, user->pw_gid, list, &count) < 0)
        return -E2BIG;
    for (int i = 0; i < count && rc == 0; i++)
        rc = hy_string_list_take(ret, hy_asprintf("%u", (unsigned)list[i]));
    return rc;
}

static int local_acl_groups(const char *user, struct hy_string_list *ret, struct hy_err *err)
{
    hy_cleanup_free char *buffer = NULL;
    union account a;
    int rc = find_account(user_by_name, user, &a, &buffer);

    if (rc > 0)
        rc = add_groups(&a.user, ret);
    return rc < 0 ? hy_err_sys(err, rc, "cannot look up the groups of the user '%s'", user) : 0;
}

static int local_acl_user_name(const char *url, const char *user, char **ret, struct hy_err *err)
{
    unsigned uid;
    int rc = id_of(user_by_name, user, &uid, err);

    (void)url;
    if (rc < 0)
        return rc;
    *ret = hy_asprintf("%u", uid);
    return *ret ? 0 : hy_err_oom(err);
}

/* ---- usage -------------------------------------------------------------------------- */

static int add_entry(const FTSENT *e, struct hy_fs_usage *sum)
{
    switch (e->fts_info) {
    case FTS_DP: /* a directory is returned twice, before and after its contents */
        return 0;
    case FTS_DNR:
    case FTS_ERR:
    case FTS_NS:
        return e->fts_errno == ENOENT && e->fts_level > 0 ? 0 : -e->fts_errno;
    case FTS_D:
        sum->directories++;
        break;
    default: /* only regular files have content */
        sum->files++;
        sum->bytes += e->fts_info == FTS_F ? (uint64_t)e->fts_statp->st_size : 0;
    }
    sum->stored += 512 * (uint64_t)e->fts_statp->st_blocks;
    return 0;
}

static int add_tree(FTS *tree, const char *url, struct hy_fs_usage *sum, struct hy_err *err)
{
    FTSENT *e;
    int rc = 0;

    while ((errno = 0, e = fts_read(tree))) {
        rc = add_entry(e, sum);
        if (rc < 0)
            return e->fts_level > 0 ? failed(err, rc, "read the attributes of", e->fts_path)
                                    : failed_existing(err, rc, "read the attributes of", url);
    }
    return errno ? failed(err, -errno, "measure", url) : 0;
}

static int local_usage(const char *url, struct hy_fs_usage *ret, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    struct hy_fs_usage sum = {0};
    int rc = hy_fs_local_path(url, &path, err);
    char *roots[] = {path, NULL};
    FTS *tree;

    if (rc < 0)
        return rc;
    tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    if (!tree)
        return failed(err, -errno, "measure", url);
    rc = add_tree(tree, url, &sum, err);
    fts_close(tree);
    if (rc == 0)
        *ret = sum;
    return rc;
}

static int local_space(const char *url, struct hy_fs_space *ret, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    struct statvfs st;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    if (HY_SYS(statvfs(path, &st)) < 0)
        return failed_existing(err, -errno, "read the free space of", url);
    *ret = (struct hy_fs_space){
        .capacity = (uint64_t)st.f_blocks * st.f_frsize,
        .used = (uint64_t)(st.f_blocks - st.f_bfree) * st.f_frsize,
        .free = (uint64_t)st.f_bavail * st.f_frsize, /* without the blocks reserved for root */
    };
    return 0;
}

/* ---- open files -------------------------------------------------------------------- */

struct local_file {
    struct hy_fs_file base;
    char *url;
    int fd;
    uint64_t size;
    struct hy_err failure; /* of the first write that failed */
};

static uint64_t local_size(const struct hy_fs_file *file)
{
    return ((const struct local_file *)file)->size;
}

static int64_t local_pread(struct hy_fs_file *file, void *into, size_t n, uint64_t offset, struct hy_err *err)
{
    const struct local_file *f = (const struct local_file *)file;
    size_t done = 0;

    if (offset > INT64_MAX - n)
        return hy_err_set(err, -EINVAL, "offset %llu is too large", (unsigned long long)offset);
    while (done < n) {
        ssize_t got = HY_SYS(pread(f->fd, (char *)into + done, n - done, (off_t)(offset + done)));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return failed(err, -errno, "read", f->url);
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

/* After the first failure every call fails with the same error. */
static int report_failure(const struct local_file *f, struct hy_err *err)
{
    if (err && f->failure.code < 0)
        *err = f->failure;
    return f->failure.code;
}

static int local_write(struct hy_fs_file *file, const void *bytes, size_t n, struct hy_err *err)
{
    struct local_file *f = (struct local_file *)file;
    int rc;

    if (f->failure.code == 0) {
        rc = hy_write_all(f->fd, bytes, n);
        if (rc < 0)
            failed(&f->failure, rc, "write", f->url);
        else
            f->size += n;
    }
    return report_failure(f, err);
}

static int local_flush(struct hy_fs_file *file, bool to_disk, struct hy_err *err)
{
    struct local_file *f = (struct local_file *)file;

    if (f->failure.code == 0 && to_disk && HY_SYS(fsync(f->fd)) < 0)
        failed(&f->failure, -errno, "write", f->url);
    return report_failure(f, err);
}

static void free_file(struct local_file *f)
{
    hy_close_at(&f->fd);
    free(f->url);
    free(f);
}

static int local_close(struct hy_fs_file *file, struct hy_err *err)
{
    struct local_file *f = (struct local_file *)file;
    int rc;

    /* NFS reports a full disk here. The descriptor is closed even then. */
    rc = close(hy_take_fd(f->fd));
    if (HY_SYS(rc) < 0 && errno != EINTR && f->failure.code == 0)
        failed(&f->failure, -errno, "write", f->url);
    rc = f->base.ops->write ? report_failure(f, err) : 0;
    free_file(f);
    return rc;
}

static const struct hy_fs_file_ops input = {.size = local_size, .pread = local_pread, .close = local_close};
static const struct hy_fs_file_ops output = {
    .size = local_size, .write = local_write, .flush = local_flush, .close = local_close};

static int open_regular(const char *path, enum hy_fs_open_mode mode, struct stat *ret)
{
    static const int flags[] = {
        [HY_FS_READ] = O_RDONLY,
        [HY_FS_WRITE] = O_WRONLY | O_CREAT | O_TRUNC,
        [HY_FS_CREATE] = O_WRONLY | O_CREAT | O_EXCL,
        [HY_FS_APPEND] = O_WRONLY | O_CREAT | O_APPEND,
    };
    /* Without O_NONBLOCK the open of a FIFO would block. */
    hy_cleanup_close int fd = HY_SYS(open(path, flags[mode] | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666));

    if (fd < 0 || HY_SYS(fstat(fd, ret)) < 0)
        return -errno;
    if (S_ISDIR(ret->st_mode))
        return -EISDIR;
    return S_ISREG(ret->st_mode) ? hy_take_fd(fd) : -ENXIO;
}

static int cannot_open(const char *url, enum hy_fs_open_mode mode, int code, struct hy_err *err)
{
    if (code == -ENXIO)
        return hy_err_set(err, -EINVAL, "%s is neither a file nor a directory", url);
    if (code == -EEXIST)
        return hy_err_set(err, code, "%s already exists", url);
    if (code == -ENOENT && mode != HY_FS_READ)
        return hy_err_set(err, code, "cannot write %s: its directory does not exist", url);
    return failed_existing(err, code, mode == HY_FS_READ ? "read" : "write", url);
}

static int local_open(const char *url, enum hy_fs_open_mode mode, struct hy_fs_file **ret, struct hy_err *err)
{
    hy_cleanup_free char *path = NULL;
    struct local_file *f;
    struct stat st;
    int rc = hy_fs_local_path(url, &path, err);

    if (rc < 0)
        return rc;
    f = hy_calloc(1, sizeof *f); /* allocates first, so that a failure leaves no file behind */
    if (!f)
        return hy_err_oom(err);
    f->url = hy_strdup(url);
    f->fd = f->url ? open_regular(path, mode, &st) : -ENOMEM;
    if (f->fd < 0) {
        rc = cannot_open(url, mode, f->fd, err);
        free_file(f);
        return rc;
    }
    f->base.ops = mode == HY_FS_READ ? &input : &output;
    f->size = (uint64_t)st.st_size;
    *ret = &f->base;
    return 0;
}

const struct hy_fs_backend hy_fs_local = {
    .stat = local_stat,
    .list = local_list,
    .mkdirs = local_mkdirs,
    .remove = local_remove,
    .rename = local_rename,
    .chmod = local_chmod,
    .chown = local_chown,
    .access = local_access,
    .usage = local_usage,
    .space = local_space,
    .open = local_open,
    .acl_get = hy_fs_local_acl_get,
    .acl_set = hy_fs_local_acl_set,
    .acl_groups = local_acl_groups,
    .acl_user_name = local_acl_user_name,
    .acl_walk = hy_fs_local_acl_walk,
};
