/* SPDX-License-Identifier: Apache-2.0 */
#include "tensorflow/files.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "fs/fs.h"
#include "hdfs/hdfs.h"

/* The codes that TensorFlow uses for local files; TensorFlow and Keras retry after some of them. */
static TF_Code status_code(int64_t rc)
{
    switch (-rc) {
    case ENOENT:
        return TF_NOT_FOUND;
    case EEXIST:
        return TF_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
        return TF_PERMISSION_DENIED;
    case ENOTEMPTY:
    case ENOTDIR:
    case EISDIR:
    case EBADF:
        return TF_FAILED_PRECONDITION;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
        return TF_RESOURCE_EXHAUSTED;
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
        return TF_INVALID_ARGUMENT;
    case EPROTONOSUPPORT:
    case ENOTSUP:
    case ENOSYS:
    case EXDEV:
        return TF_UNIMPLEMENTED;
    case EBADMSG: /* no replica with a valid checksum */
        return TF_DATA_LOSS;
    case ESTALE: /* another client has taken over the lease of the file */
        return TF_ABORTED;
    case EROFS: /* safe mode */
    case EAGAIN:
    case EBUSY:
    case ETIMEDOUT:
    case EPIPE:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case ENOTCONN:
    case ECONNREFUSED:
    case ECONNRESET:
    case ECONNABORTED:
        return TF_UNAVAILABLE;
    default:
        return TF_UNKNOWN;
    }
}

bool hy_files_set_status(TF_Status *status, int64_t rc, const struct hy_err *err)
{
    hy_tf.SetStatus(status, rc >= 0 ? TF_OK : status_code(rc), rc >= 0 ? "" : err->text);
    return rc >= 0;
}

/* ---- status ------------------------------------------------------------------------- */

static void path_exists(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct hy_err err = {0};
    const int rc = hy_fs_stat(url, &info, &err);

    (void)fs;
    /* -ENOTDIR: a path below a file, for which gfile.exists must return False */
    hy_files_set_status(status, rc == -ENOTDIR ? -ENOENT : rc, &err);
}

static void stat_path(const TF_Filesystem *fs, const char *url, TF_FileStatistics *ret, TF_Status *status)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct hy_err err = {0};

    (void)fs;
    if (!hy_files_set_status(status, hy_fs_stat(url, &info, &err), &err))
        return;
    *ret = (TF_FileStatistics){
        .length = (int64_t)info.size,
        .mtime_nsec = info.modified_ms * 1000000,
        .is_directory = info.is_dir,
    };
}

/* -ENOTDIR or -EISDIR unless it is of the expected type. */
static int expect(const char *url, bool is_dir, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    const int rc = hy_fs_stat(url, &info, err);

    if (rc < 0 || info.is_dir == is_dir)
        return rc;
    return is_dir ? hy_err_set(err, -ENOTDIR, "%s is not a directory", url)
                  : hy_err_set(err, -EISDIR, "%s is a directory", url);
}

/* TensorFlow only uses the status. */
static bool is_directory(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    struct hy_err err = {0};

    (void)fs;
    return hy_files_set_status(status, expect(url, true, &err), &err);
}

/* ---- lists ------------------------------------------------------------------------- */

struct names {
    char **list;
    size_t count, room;
};

static void names_done(struct names *n)
{
    for (size_t i = 0; i < n->count; i++)
        free(n->list[i]);
    free(n->list);
}

#define cleanup_names __attribute__((cleanup(names_done)))

/* Takes `name`; NULL means out of memory. */
static int names_add(struct names *n, char *name, struct hy_err *err)
{
    if (name && n->count == n->room) {
        const size_t room = n->room ? 2 * n->room : 64;
        char **list = hy_reallocarray(n->list, room, sizeof(*list));

        if (list) {
            n->list = list;
            n->room = room;
        }
    }
    if (!name || n->count == n->room || n->count == INT_MAX) {
        free(name);
        return hy_err_set(err, -ENOMEM, "out of memory for %zu names", n->count);
    }
    n->list[n->count++] = name;
    return 0;
}

static int names_return(struct names *n, int rc, char ***entries, TF_Status *status, const struct hy_err *err)
{
    if (!hy_files_set_status(status, rc, err))
        return -1;
    rc = (int)n->count;
    n->count = 0;
    *entries = hy_take(n->list);
    return rc;
}

static int add_entry(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    return names_add(arg, hy_take(entry->name), err);
}

static int get_children(const TF_Filesystem *fs, const char *url, char ***entries, TF_Status *status)
{
    cleanup_names struct names names = {0};
    struct hy_err err = {0};

    (void)fs;
    return names_return(&names, hy_fs_list(url, add_entry, &names, &err), entries, status, &err);
}

static int add_match(void *arg, const char *url, const struct hy_fs_info *info, struct hy_err *err)
{
    (void)info;
    return names_add(arg, hy_strdup(url), err);
}

/* TensorFlow's patterns have no {a,b}: braces match themselves. */
static char *escape_braces(const char *pattern)
{
    char *escaped = hy_malloc(2 * strlen(pattern) + 1), *to = escaped;

    if (!escaped)
        return NULL;
    for (const char *from = pattern; *from; from++) {
        if (*from == '{' || *from == '}')
            *to++ = '\\';
        else if (*from == '\\' && from[1])
            *to++ = *from++;
        *to++ = *from;
    }
    *to = '\0';
    return escaped;
}

/* TensorFlow's default stats every entry; a listing already contains the type. */
static int get_matching_paths(const TF_Filesystem *fs, const char *pattern, char ***entries, TF_Status *status)
{
    cleanup_names struct names names = {0};
    hy_cleanup_free char *escaped = escape_braces(pattern);
    struct hy_err err = {0};
    int rc;

    (void)fs;
    rc = escaped ? hy_fs_glob(escaped, add_match, &names, &err) : hy_err_oom(&err);
    return names_return(&names, rc, entries, status, &err);
}

/* ---- changes ----------------------------------------------------------------------- */

/* Creates one directory in an existing one: src/fs only has the equivalent of mkdir -p. */
static int create_one_dir(const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_free char *parent = hy_url_parent(url);
    int rc = hy_fs_stat(url, &info, err);

    if (rc == 0)
        return hy_err_set(err, -EEXIST, "%s already exists", url);
    if (rc != -ENOENT && rc != -ENOTDIR)
        return rc;
    rc = parent ? expect(parent, true, err) : hy_err_oom(err);
    if (rc == -ENOENT)
        return hy_err_set(err, rc, "cannot create the directory %s: its parent does not exist", url);
    return rc < 0 ? rc : hy_fs_mkdirs(url, 0777, err);
}

static void create_dir(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    struct hy_err err = {0};

    (void)fs;
    hy_files_set_status(status, create_one_dir(url, &err), &err);
}

static void recursively_create_dir(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    struct hy_err err = {0};

    (void)fs;
    hy_files_set_status(status, hy_fs_mkdirs(url, 0777, &err), &err);
}

static bool remove_path(const char *url, bool is_dir, bool recursive, TF_Status *status)
{
    struct hy_err err = {0};
    const int rc = expect(url, is_dir, &err);

    return hy_files_set_status(status, rc < 0 ? rc : hy_fs_remove(url, recursive, &err), &err);
}

static void delete_file(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    (void)fs;
    (void)remove_path(url, false, false, status);
}

static void delete_dir(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    (void)fs;
    (void)remove_path(url, true, false, status);
}

/* Deletes everything or nothing: on failure one directory counts as undeleted. */
static void delete_recursively(const TF_Filesystem *fs, const char *url, uint64_t *undeleted_files,
                               uint64_t *undeleted_dirs, TF_Status *status)
{
    (void)fs;
    *undeleted_files = 0;
    *undeleted_dirs = remove_path(url, true, true, status) ? 0 : 1;
}

static void rename_file(const TF_Filesystem *fs, const char *from, const char *to, TF_Status *status)
{
    struct hy_err err = {0};

    (void)fs;
    hy_files_set_status(status, hy_fs_rename(from, to, true, &err), &err);
}

static void copy_file(const TF_Filesystem *fs, const char *from, const char *to, TF_Status *status)
{
    const struct hy_fs_copy how = {.replace = true};
    struct hy_err err = {0};

    (void)fs;
    hy_files_set_status(status, hy_fs_copy(from, to, &how, &err), &err);
}

/* ---- registration ------------------------------------------------------------------ */

static void init(TF_Filesystem *fs, TF_Status *status)
{
    (void)fs;
    hy_files_set_status(status, 0, NULL);
}

static void cleanup(TF_Filesystem *fs)
{
    (void)fs;
}

/* TensorFlow's default removes scheme and host; src/hdfs normalizes the path. */
static char *translate_name(const TF_Filesystem *fs, const char *url)
{
    (void)fs;
    return hy_strdup(url);
}

static const TF_FilesystemOps files_ops = {
    .init = init,
    .cleanup = cleanup,
    .new_random_access_file = hy_files_open_to_read,
    .new_writable_file = hy_files_open_to_write,
    .new_appendable_file = hy_files_open_to_append,
    .create_dir = create_dir,
    .recursively_create_dir = recursively_create_dir,
    .delete_file = delete_file,
    .delete_dir = delete_dir,
    .delete_recursively = delete_recursively,
    .rename_file = rename_file,
    .copy_file = copy_file,
    .path_exists = path_exists,
    .stat = stat_path,
    .is_directory = is_directory,
    .translate_name = translate_name,
    .get_children = get_children,
    .get_matching_paths = get_matching_paths,
};

static void *copy_of(const void *table, size_t size)
{
    void *copy = hy_malloc(size);

    return copy ? memcpy(copy, table, size) : NULL;
}

/* A failed allocation stays NULL, for which TensorFlow reports an error. All versions are 0. */
static TF_FilesystemPluginOps plugin_ops(const char *scheme)
{
    return (TF_FilesystemPluginOps){
        .scheme = hy_strdup(scheme),
        .filesystem_ops_size = sizeof(files_ops),
        .filesystem_ops = copy_of(&files_ops, sizeof(files_ops)),
        .random_access_file_ops_size = sizeof(hy_files_read_ops),
        .random_access_file_ops = copy_of(&hy_files_read_ops, sizeof(hy_files_read_ops)),
        .writable_file_ops_size = sizeof(hy_files_write_ops),
        .writable_file_ops = copy_of(&hy_files_write_ops, sizeof(hy_files_write_ops)),
    };
}

/* TensorFlow looks it up by this name. */
__attribute__((visibility("default"))) TF_InitPluginFn TF_InitPlugin;

void TF_InitPlugin(TF_FilesystemPluginInfo *info)
{
    static const char *const schemes[] = {"hdfs", "hopsfs"};

    info->plugin_memory_allocate = hy_malloc;
    info->plugin_memory_free = free;
    info->ops = hy_calloc(HY_COUNT(schemes), sizeof(*info->ops));
    for (size_t i = 0; info->ops && i < HY_COUNT(schemes); i++)
        info->ops[info->num_schemes++] = plugin_ops(schemes[i]);
}

/* TensorFlow loads file systems only from libraries, by path: it gets the path of this library. */
int hy_files_register(struct hy_err *err)
{
    TF_RegisterFilesystemPluginFn *register_plugin;
    Dl_info own;

    *(void **)&register_plugin = hy_tf_symbol("TF_RegisterFilesystemPlugin");
    if (!register_plugin || !dladdr((void *)hy_files_register, &own))
        return hy_err_set(err, -ENOSYS, "this TensorFlow has no file system plugins, so it cannot open hdfs://");
    hy_hdfs_add();
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    register_plugin(own.dli_fname, status);
    if (hy_tf.GetCode(status) == TF_OK)
        return 0;
    return hy_err_set(err, hy_tf.GetCode(status) == TF_ALREADY_EXISTS ? -EEXIST : -ENOSYS,
                      "TensorFlow did not register hopyard's file system for hdfs://: %s", hy_tf.Message(status));
}
