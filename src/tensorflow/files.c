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

/* As TensorFlow itself takes errors of files of this machine; where it matters, what it or Keras tries again. */
static TF_Code code_of(int64_t rc)
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
    case EBADMSG: /* no replica with the right checksum */
        return TF_DATA_LOSS;
    case ESTALE: /* another has taken the file over */
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

bool hy_files_say(TF_Status *status, int64_t rc, const struct hy_err *err)
{
    hy_tf.SetStatus(status, rc >= 0 ? TF_OK : code_of(rc), rc >= 0 ? "" : err->text);
    return rc >= 0;
}

/* ---- what there is ----------------------------------------------------------------- */

static void path_exists(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct hy_err err = {0};
    const int rc = hy_fs_stat(url, &info, &err);

    (void)fs;
    hy_files_say(status, rc == -ENOTDIR ? -ENOENT : rc, &err); /* below a file: gfile.exists is to say no */
}

static void stat_path(const TF_Filesystem *fs, const char *url, TF_FileStatistics *ret, TF_Status *status)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    struct hy_err err = {0};

    (void)fs;
    if (!hy_files_say(status, hy_fs_stat(url, &info, &err), &err))
        return;
    *ret = (TF_FileStatistics){
        .length = (int64_t)info.size,
        .mtime_nsec = info.modified_ms * 1000000,
        .is_directory = info.is_dir,
    };
}

/* Stats it: -ENOTDIR or -EISDIR when it is not what was meant. */
static int expect(const char *url, bool is_dir, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    const int rc = hy_fs_stat(url, &info, err);

    if (rc < 0 || info.is_dir == is_dir)
        return rc;
    return is_dir ? hy_err_set(err, -ENOTDIR, "%s is no folder", url) : hy_err_set(err, -EISDIR, "%s is a folder", url);
}

/* The status alone is what TensorFlow looks at. */
static bool is_directory(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    struct hy_err err = {0};

    (void)fs;
    return hy_files_say(status, expect(url, true, &err), &err);
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

/* Takes `name`, NULL when it could not be had. */
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

static int names_give(struct names *n, int rc, char ***entries, TF_Status *status, const struct hy_err *err)
{
    if (!hy_files_say(status, rc, err))
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
    return names_give(&names, hy_fs_list(url, add_entry, &names, &err), entries, status, &err);
}

static int add_match(void *arg, const char *url, const struct hy_fs_info *info, struct hy_err *err)
{
    (void)info;
    return names_add(arg, hy_strdup(url), err);
}

/* TensorFlow's patterns have no {a,b}: braces are characters like others. */
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

/* TensorFlow's own way asks for every entry whether it is a folder; a list says it. */
static int get_matching_paths(const TF_Filesystem *fs, const char *pattern, char ***entries, TF_Status *status)
{
    cleanup_names struct names names = {0};
    hy_cleanup_free char *escaped = escape_braces(pattern);
    struct hy_err err = {0};
    int rc;

    (void)fs;
    rc = escaped ? hy_fs_glob(escaped, add_match, &names, &err) : hy_err_oom(&err);
    return names_give(&names, rc, entries, status, &err);
}

/* ---- changes ----------------------------------------------------------------------- */

/* One folder, in one that is there: src/fs knows only the kind way. */
static int make_one(const char *url, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    hy_cleanup_free char *above = hy_url_parent(url);
    int rc = hy_fs_stat(url, &info, err);

    if (rc == 0)
        return hy_err_set(err, -EEXIST, "%s is there already", url);
    if (rc != -ENOENT && rc != -ENOTDIR)
        return rc;
    rc = above ? expect(above, true, err) : hy_err_oom(err);
    if (rc == -ENOENT)
        return hy_err_set(err, rc, "cannot make the folder %s: the one it is to lie in is not there", url);
    return rc < 0 ? rc : hy_fs_mkdirs(url, 0777, err);
}

static void create_dir(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    struct hy_err err = {0};

    (void)fs;
    hy_files_say(status, make_one(url, &err), &err);
}

static void recursively_create_dir(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    struct hy_err err = {0};

    (void)fs;
    hy_files_say(status, hy_fs_mkdirs(url, 0777, &err), &err);
}

static bool remove_kind(const char *url, bool is_dir, bool recursive, TF_Status *status)
{
    struct hy_err err = {0};
    const int rc = expect(url, is_dir, &err);

    return hy_files_say(status, rc < 0 ? rc : hy_fs_remove(url, recursive, &err), &err);
}

static void delete_file(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    (void)fs;
    (void)remove_kind(url, false, false, status);
}

static void delete_dir(const TF_Filesystem *fs, const char *url, TF_Status *status)
{
    (void)fs;
    (void)remove_kind(url, true, false, status);
}

/* All at once or nothing: then the folder is what is left, as TensorFlow wants it counted. */
static void delete_recursively(const TF_Filesystem *fs, const char *url, uint64_t *undeleted_files,
                               uint64_t *undeleted_dirs, TF_Status *status)
{
    (void)fs;
    *undeleted_files = 0;
    *undeleted_dirs = remove_kind(url, true, true, status) ? 0 : 1;
}

static void rename_file(const TF_Filesystem *fs, const char *from, const char *to, TF_Status *status)
{
    struct hy_err err = {0};

    (void)fs;
    hy_files_say(status, hy_fs_rename(from, to, true, &err), &err);
}

static void copy_file(const TF_Filesystem *fs, const char *from, const char *to, TF_Status *status)
{
    const struct hy_fs_copy how = {.replace = true};
    struct hy_err err = {0};

    (void)fs;
    hy_files_say(status, hy_fs_copy(from, to, &how, &err), &err);
}

/* ---- how TensorFlow comes to it ---------------------------------------------------- */

static void init(TF_Filesystem *fs, TF_Status *status)
{
    (void)fs;
    hy_files_say(status, 0, NULL);
}

static void cleanup(TF_Filesystem *fs)
{
    (void)fs;
}

/* TensorFlow would cut scheme and host off; src/hdfs puts the path in order. */
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

/* What could not be had stays NULL, which TensorFlow answers with a sentence. All versions are 0. */
static TF_FilesystemPluginOps offer(const char *scheme)
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
        info->ops[info->num_schemes++] = offer(schemes[i]);
}

/* TensorFlow takes file systems from libraries only, by their path: it gets the one that we are in. */
int hy_files_register(struct hy_err *err)
{
    TF_RegisterFilesystemPluginFn *take;
    Dl_info own;

    *(void **)&take = hy_tf_symbol("TF_RegisterFilesystemPlugin");
    if (!take || !dladdr((void *)hy_files_register, &own))
        return hy_err_set(err, -ENOSYS, "this TensorFlow takes no file systems: hdfs:// is not known in it");
    hy_hdfs_add();
    hy_cleanup_status TF_Status *status = hy_tf.NewStatus();
    take(own.dli_fname, status);
    if (hy_tf.GetCode(status) == TF_OK)
        return 0;
    return hy_err_set(err, hy_tf.GetCode(status) == TF_ALREADY_EXISTS ? -EEXIST : -ENOSYS,
                      "TensorFlow did not take hopyard's hdfs://: %s", hy_tf.Message(status));
}
