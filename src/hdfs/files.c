/* SPDX-License-Identifier: Apache-2.0 */
/* The file system "hdfs": operations that need only the NameNode, and the registration with fs.h. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "fs/fs.h"
#include "hdfs/acl.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode.h"
#include "hdfs/data/short_circuit.h"
#include "hdfs/hdfs.h"
#include "hdfs/lease_renewer.h"
#include "hdfs/listing.h"
#include "hdfs/stream.h"

struct location {
    struct hy_hdfs_cluster *cluster;
    char *path;
};

static void location_done(struct location *p)
{
    free(p->path);
}

#define cleanup_location __attribute__((cleanup(location_done)))

static int locate(struct location *p, const char *url, struct hy_err *err)
{
    return hy_hdfs_cluster_find(url, &p->cluster, &p->path, err);
}

/* Puts the operation in front of the NameNode's message. */
static int failed(struct hy_err *err, int rc, const char *doing, const char *url)
{
    if (err) {
        hy_err_wrap(err, "cannot %s %s", doing, url);
        err->code = rc;
    }
    return rc;
}

static char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return hy_strdup(slash && slash[1] ? slash + 1 : path);
}

#define TIME_MAX (INT64_MAX / 1000000) /* milliseconds: some callers convert to nanoseconds */

/* Milliseconds since 1970, may be negative; 0 (unknown) for an invalid time. */
static int64_t to_time(uint64_t ms)
{
    const int64_t time = (int64_t)ms;

    return time > TIME_MAX || time < -TIME_MAX ? 0 : time;
}

static int to_info(const Hdfs__FileStatus *s, char *name, struct hy_fs_info *ret, struct hy_err *err)
{
    *ret = (struct hy_fs_info){
        .name = name,
        .owner = hy_strdup(s->owner),
        .group = hy_strdup(s->group),
        .size = s->length,
        .block_size = s->blocksize,
        .modified_ms = to_time(s->modification_time),
        .accessed_ms = to_time(s->access_time),
        .replication = s->block_replication,
        .mode = s->permission->perm & 07777,
        .is_dir = s->filetype == HDFS__FILE_STATUS__FILE_TYPE__IS_DIR,
        .is_link = s->filetype == HDFS__FILE_STATUS__FILE_TYPE__IS_SYMLINK,
    };
    if (ret->name && ret->owner && ret->group)
        return 0;
    hy_fs_info_done(ret);
    return hy_err_oom(err);
}

static int hdfs_stat(const char *url, struct hy_fs_info *ret, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    Hdfs__GetFileInfoRequest request = HDFS__GET_FILE_INFO_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__GetFileInfoResponse *response = NULL;
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    request.src = p.path;
    rc = hy_hdfs_call(p.cluster, "getFileInfo", &request.base, &hdfs__get_file_info_response__descriptor, &response,
                      err);
    if (rc < 0)
        return failed(err, rc, "read the attributes of", url);
    if (!response->fs)
        return hy_err_set(err, -ENOENT, "%s does not exist", url);
    rc = hy_hdfs_check_sizes(response->fs, url, err);
    return rc < 0 ? rc : to_info(response->fs, last_part(p.path), ret, err);
}

/* ---- listings ------------------------------------------------------------------------- */

static int visit_entry(const Hdfs__FileStatus *s, hy_fs_visit *visit, void *arg, struct hy_err *err)
{
    struct hy_fs_info info;
    int rc = to_info(s, hy_strndup((const char *)s->path.data, s->path.len), &info, err);

    if (rc == 0) {
        rc = visit(arg, &info, err);
        hy_fs_info_done(&info);
    }
    return rc;
}

/* One page of a directory, validated before the first entry is visited. 1: more pages follow. */
static int list_page(const struct location *p, const char *url, struct hy_hdfs_listing *listing, hy_fs_visit *visit,
                     void *arg, struct hy_err *err)
{
    Hdfs__GetListingRequest request = HDFS__GET_LISTING_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__GetListingResponse *response = NULL;
    int rc, more;

    request.src = p->path;
    request.startafter.data = (uint8_t *)listing->after;
    request.startafter.len = listing->after ? strlen(listing->after) : 0;
    rc = hy_hdfs_call(p->cluster, "getListing", &request.base, &hdfs__get_listing_response__descriptor, &response, err);
    if (rc < 0)
        return failed(err, rc, "list", url);
    if (!response->dirlist)
        return hy_err_set(err, -ENOENT, "%s does not exist", url);
    more = hy_hdfs_listing_page(listing, response->dirlist, url, err);
    if (more < 0)
        return more;
    for (size_t i = 0; i < response->dirlist->n_partiallisting; i++) {
        rc = visit_entry(response->dirlist->partiallisting[i], visit, arg, err);
        if (rc)
            return rc < 0 ? rc : -ECANCELED;
    }
    return more;
}

struct visitor {
    hy_fs_visit *visit;
    void *arg;
    int rc; /* the result of the last visit */
};

static int visit_and_record(void *arg, struct hy_fs_info *entry, struct hy_err *err)
{
    struct visitor *s = arg;

    return s->rc = s->visit(s->arg, entry, err);
}

static int hdfs_list(const char *url, hy_fs_visit *visit, void *arg, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    hy_cleanup_hdfs_listing struct hy_hdfs_listing listing = {0};
    struct visitor s = {.visit = visit, .arg = arg};
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    while ((rc = list_page(&p, url, &listing, visit_and_record, &s, err)) > 0)
        ;
    return s.rc ? s.rc : rc;
}

/* ---- changes ----------------------------------------------------------------------- */

unsigned hy_hdfs_masked(const struct hy_hdfs_cluster *c, unsigned mode)
{
    const char *text = hy_hdfs_conf_get(c->conf, "fs.permissions.umask-mode");
    char *end;
    unsigned long mask = text ? strtoul(text, &end, 8) : 022;

    return mode & ~(unsigned)(text && (*end || mask > 0777) ? 022 : mask);
}

static int hdfs_mkdirs(const char *url, unsigned mode, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    Hdfs__MkdirsRequest request = HDFS__MKDIRS_REQUEST__INIT;
    Hdfs__Permission masked = HDFS__PERMISSION__INIT, unmasked = HDFS__PERMISSION__INIT;
    hy_cleanup_hdfs_response Hdfs__Result *response = NULL;
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    request.src = p.path;
    masked.perm = hy_hdfs_masked(p.cluster, mode);
    unmasked.perm = mode;
    request.masked = &masked;
    request.unmasked = &unmasked;
    request.createparent = 1;
    rc = hy_hdfs_call(p.cluster, "mkdirs", &request.base, &hdfs__result__descriptor, &response, err);
    if (rc == -EEXIST)
        rc = -ENOTDIR; /* as mkdir(2) when a component is a file */
    return rc < 0 ? failed(err, rc, "create the directory", url) : 0;
}

/* The NameNode reports a directory that is not empty as a plain IOException. */
static bool is_not_empty_error(const struct hy_err *err)
{
    return err && strstr(err->text, "is non empty");
}

static int hdfs_remove(const char *url, bool recursive, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    Hdfs__DeleteRequest request = HDFS__DELETE_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Result *response = NULL;
    struct hy_err own = {0};
    int rc = locate(&p, url, err = err ? err : &own);

    if (rc < 0)
        return rc;
    request.src = p.path;
    request.recursive = recursive;
    rc = hy_hdfs_call(p.cluster, "delete", &request.base, &hdfs__result__descriptor, &response, err);
    if (rc == -EIO && is_not_empty_error(err))
        rc = -ENOTEMPTY;
    if (rc < 0)
        return failed(err, rc, "remove", url);
    return response->result ? 0 : hy_err_set(err, -ENOENT, "%s does not exist", url);
}

static int hdfs_rename(const char *from, const char *to, bool replace, struct hy_err *err)
{
    cleanup_location struct location p = {0}, q = {0};
    Hdfs__Rename2Request request = HDFS__RENAME2_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;
    int rc = locate(&p, from, err);

    if (rc == 0)
        rc = locate(&q, to, err);
    if (rc < 0)
        return rc;
    if (p.cluster != q.cluster)
        return hy_err_set(err, -EXDEV, "%s and %s are on different clusters; copy instead", from, to);
    request.src = p.path;
    request.dst = q.path;
    request.overwritedest = replace;
    rc = hy_hdfs_call(p.cluster, "rename2", &request.base, &hdfs__nothing__descriptor, &response, err);
    return rc < 0 ? failed(err, rc, "rename", from) : 0;
}

static int hdfs_chmod(const char *url, unsigned mode, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    Hdfs__SetPermissionRequest request = HDFS__SET_PERMISSION_REQUEST__INIT;
    Hdfs__Permission permission = HDFS__PERMISSION__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    request.src = p.path;
    permission.perm = mode & 07777;
    request.permission = &permission;
    rc = hy_hdfs_call(p.cluster, "setPermission", &request.base, &hdfs__nothing__descriptor, &response, err);
    return rc < 0 ? failed(err, rc, "change the mode of", url) : 0;
}

static int hdfs_chown(const char *url, const char *owner, const char *group, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    Hdfs__SetOwnerRequest request = HDFS__SET_OWNER_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    request.src = p.path;
    request.username = (char *)owner;
    request.groupname = (char *)group;
    rc = hy_hdfs_call(p.cluster, "setOwner", &request.base, &hdfs__nothing__descriptor, &response, err);
    return rc < 0 ? failed(err, rc, "change the owner of", url) : 0;
}

static int hdfs_access(const char *url, int how, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    Hdfs__CheckAccessRequest request = HDFS__CHECK_ACCESS_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    request.path = p.path;
    request.mode = (uint32_t)(how & (R_OK | W_OK | X_OK)); /* HDFS uses the same bits */
    rc = hy_hdfs_call(p.cluster, "checkAccess", &request.base, &hdfs__nothing__descriptor, &response, err);
    return rc < 0 ? failed(err, rc, "access", url) : 0;
}

/* ---- usage -------------------------------------------------------------------------- */

static int hdfs_usage(const char *url, struct hy_fs_usage *ret, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    Hdfs__GetContentSummaryRequest request = HDFS__GET_CONTENT_SUMMARY_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__GetContentSummaryResponse *response = NULL;
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    request.path = p.path;
    rc = hy_hdfs_call(p.cluster, "getContentSummary", &request.base, &hdfs__get_content_summary_response__descriptor,
                      &response, err);
    if (rc < 0)
        return failed(err, rc, "measure", url);
    *ret = (struct hy_fs_usage){
        .bytes = response->summary->length,
        .files = response->summary->filecount,
        .directories = response->summary->directorycount,
        .stored = response->summary->spaceconsumed,
    };
    return 0;
}

static int hdfs_space(const char *url, struct hy_fs_space *ret, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    Hdfs__Nothing request = HDFS__NOTHING__INIT;
    hy_cleanup_hdfs_response Hdfs__GetFsStatsResponse *response = NULL;
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    rc = hy_hdfs_call(p.cluster, "getFsStats", &request.base, &hdfs__get_fs_stats_response__descriptor, &response, err);
    if (rc < 0)
        return failed(err, rc, "read the free space of", url);
    *ret = (struct hy_fs_space){.capacity = response->capacity, .used = response->used, .free = response->remaining};
    return 0;
}

/* ---- access control lists --------------------------------------------------------------- */

static int hdfs_acl_get(const char *url, struct hy_fs_acl *ret, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    rc = hy_hdfs_acl_get(p.cluster, p.path, ret, err);
    return rc < 0 ? failed(err, rc, "read the permissions of", url) : 0;
}

static int hdfs_acl_set(const char *url, const struct hy_fs_acl *acl, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    rc = hy_hdfs_acl_set(p.cluster, p.path, acl, err);
    return rc < 0 ? failed(err, rc, "change the permissions of", url) : 0;
}

/* A NameNode does not have a list of users. */
static int hdfs_acl_user_name(const char *url, const char *user, char **ret, struct hy_err *err)
{
    (void)url;
    if (!hy_hdfs_is_user(user))
        return hy_err_set(err, -EINVAL, "'%s' is not the name of a user", user);
    *ret = hy_strdup(user);
    return *ret ? 0 : hy_err_oom(err);
}

static int hdfs_open(const char *url, enum hy_fs_open_mode mode, struct hy_fs_file **ret, struct hy_err *err)
{
    cleanup_location struct location p = {0};
    int rc = locate(&p, url, err);

    if (rc < 0)
        return rc;
    rc = mode == HY_FS_READ ? hy_hdfs_input_open(p.cluster, p.path, ret, err)
                            : hy_hdfs_output_open(p.cluster, p.path, mode, ret, err);
    return rc < 0 ? failed(err, rc, mode == HY_FS_READ ? "read" : "write", url) : 0;
}

static const struct hy_fs_backend hdfs = {
    .stat = hdfs_stat,
    .list = hdfs_list,
    .mkdirs = hdfs_mkdirs,
    .remove = hdfs_remove,
    .rename = hdfs_rename,
    .chmod = hdfs_chmod,
    .chown = hdfs_chown,
    .access = hdfs_access,
    .usage = hdfs_usage,
    .space = hdfs_space,
    .open = hdfs_open,
    .acl_get = hdfs_acl_get,
    .acl_set = hdfs_acl_set,
    .acl_user_name = hdfs_acl_user_name,
    .acl_walk = hy_fs_acl_walk_urls,
};

static void forked(void)
{
    hy_hdfs_clusters_forked();
    hy_hdfs_datanode_forked();
    hy_hdfs_local_replica_forked();
    hy_hdfs_lease_renewer_forked();
}

static void register_fork_handler(void)
{
    pthread_atfork(NULL, NULL, forked);
}

void hy_hdfs_add(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, register_fork_handler);
    hy_fs_add("hdfs", &hdfs);
    hy_fs_add("hopsfs", &hdfs);
}

void hy_hdfs_done(void)
{
    hy_hdfs_datanode_done();
    hy_hdfs_local_replica_done();
    hy_hdfs_clusters_done();
}
