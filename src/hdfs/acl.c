/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A NameNode omits the entries that the mode contains: those of owner and
 * others, and either the mask or, without named entries, the group's entry.
 *
 * setAcl replaces a list as a whole, but keeps default entries when it gets none.
 * modifyAclEntries and removeAclEntries compute a new mask, and rights that the old one
 * has masked could become effective.
 */
#include "hdfs/acl.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "fs/fs.h"
#include "hdfs/cluster.h"

#define NAME_MAX_BYTES 256u

bool hy_hdfs_is_user(const char *name)
{
    const size_t n = strlen(name);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("_-.@$", name[i]))
            return false;
    return n > 0 && n < NAME_MAX_BYTES && name[0] != '-';
}

/* ---- parse ------------------------------------------------------------------------------ */

static int add_entry(const Hdfs__AclEntry *e, struct hy_fs_acl *ret)
{
    const bool is_default = e->scope == HDFS__ACL_ENTRY__SCOPE__DEFAULT;
    const char *name = e->name && *e->name ? e->name : NULL;

    if ((unsigned)e->type > HY_FS_ACL_OTHER || (unsigned)e->scope > HDFS__ACL_ENTRY__SCOPE__DEFAULT ||
        e->permissions > 7 || (name && (e->type > HDFS__ACL_ENTRY__TYPE__GROUP || strlen(name) >= NAME_MAX_BYTES)))
        return -EPROTO;
    /* Of the mode. */
    if (!is_default && !name && e->type != HDFS__ACL_ENTRY__TYPE__GROUP)
        return -EPROTO;
    for (size_t i = 0; i < ret->count; i++)
        if (ret->list[i].kind == (enum hy_fs_acl_kind)e->type && ret->list[i].is_default == is_default &&
            (name && ret->list[i].name ? strcmp(name, ret->list[i].name) == 0 : name == ret->list[i].name))
            return -EPROTO;
    return hy_fs_acl_add(ret, (enum hy_fs_acl_kind)e->type, is_default, name, e->permissions);
}

/* The bits of the group are the mask when the list has entries. */
static int add_mode(unsigned mode, bool has_mask, struct hy_fs_acl *ret)
{
    int rc = hy_fs_acl_add(ret, HY_FS_ACL_USER, false, NULL, mode >> 6);

    if (rc == 0)
        rc = hy_fs_acl_add(ret, has_mask ? HY_FS_ACL_MASK : HY_FS_ACL_GROUP, false, NULL, mode >> 3);
    return rc == 0 ? hy_fs_acl_add(ret, HY_FS_ACL_OTHER, false, NULL, mode) : rc;
}

static int parse(const Hdfs__AclStatus *s, struct hy_fs_acl *ret)
{
    bool has_access = false, has_group = false;
    int rc = 0;

    if (!s->permission)
        return -EPROTO;
    if (!(ret->group = hy_strdup(s->group)))
        return -ENOMEM;
    for (size_t i = 0; i < s->n_entries && rc == 0; i++) {
        const Hdfs__AclEntry *e = s->entries[i];
        const bool is_access = e->scope == HDFS__ACL_ENTRY__SCOPE__ACCESS;

        has_access = has_access || is_access;
        has_group = has_group || (is_access && e->type == HDFS__ACL_ENTRY__TYPE__GROUP && !(e->name && *e->name));
        rc = add_entry(e, ret);
    }
    if (rc == 0 && has_access && !has_group)
        rc = -EPROTO;
    return rc == 0 ? add_mode(s->permission->perm & 0777, has_access, ret) : rc;
}

int hy_hdfs_acl_parse(const Hdfs__AclStatus *status, struct hy_fs_acl *ret, struct hy_err *err)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};
    int rc = parse(status, &acl);

    if (rc == -ENOMEM)
        return hy_err_oom(err);
    if (rc < 0)
        return hy_err_set(err, -EPROTO, "the NameNode has sent an invalid access control list");
    *ret = acl;
    acl = (struct hy_fs_acl){0};
    return 0;
}

/* ---- calls ------------------------------------------------------------------------------- */

int hy_hdfs_acl_get(struct hy_hdfs_cluster *c, const char *path, struct hy_fs_acl *ret, struct hy_err *err)
{
    Hdfs__GetAclStatusRequest request = HDFS__GET_ACL_STATUS_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__GetAclStatusResponse *response = NULL;
    int rc;

    request.src = (char *)(uintptr_t)path;
    rc = hy_hdfs_call(c, "getAclStatus", &request.base, &hdfs__get_acl_status_response__descriptor, &response, err);
    return rc < 0 ? rc : hy_hdfs_acl_parse(response->result, ret, err);
}

static int remove_default(struct hy_hdfs_cluster *c, const char *path, struct hy_err *err)
{
    Hdfs__RemoveDefaultAclRequest request = HDFS__REMOVE_DEFAULT_ACL_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;

    request.src = (char *)(uintptr_t)path;
    return hy_hdfs_call(c, "removeDefaultAcl", &request.base, &hdfs__nothing__descriptor, &response, err);
}

static int set_acl(struct hy_hdfs_cluster *c, const char *path, const struct hy_fs_acl *acl, struct hy_err *err)
{
    Hdfs__SetAclRequest request = HDFS__SET_ACL_REQUEST__INIT;
    hy_cleanup_hdfs_response Hdfs__Nothing *response = NULL;
    hy_cleanup_free Hdfs__AclEntry *entries = hy_calloc(acl->count + 1, sizeof *entries);
    hy_cleanup_free Hdfs__AclEntry **list = hy_calloc(acl->count + 1, sizeof *list);

    if (!entries || !list)
        return hy_err_oom(err);
    for (size_t i = 0; i < acl->count; i++) {
        hdfs__acl_entry__init(&entries[i]);
        entries[i].type = (Hdfs__AclEntry__Type)acl->list[i].kind;
        entries[i].scope = acl->list[i].is_default ? HDFS__ACL_ENTRY__SCOPE__DEFAULT : HDFS__ACL_ENTRY__SCOPE__ACCESS;
        entries[i].permissions = acl->list[i].perm;
        entries[i].name = acl->list[i].name;
        list[i] = &entries[i];
    }
    request.src = (char *)(uintptr_t)path;
    request.n_aclspec = acl->count;
    request.aclspec = list;
    return hy_hdfs_call(c, "setAcl", &request.base, &hdfs__nothing__descriptor, &response, err);
}

int hy_hdfs_acl_set(struct hy_hdfs_cluster *c, const char *path, const struct hy_fs_acl *acl, struct hy_err *err)
{
    int rc = set_acl(c, path, acl, err);

    return rc == 0 && acl->drops_default && !hy_fs_acl_has_default(acl) ? remove_default(c, path, err) : rc;
}
