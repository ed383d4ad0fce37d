/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Access control lists: changes of a list, and walks by URL.
 *
 * The mask limits all named entries and the group's. To give one user more than
 * the mask allows, it must grow, and rights that it has masked so far would become
 * effective: so the other entries are reduced to their effective rights first.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "fs/fs.h"

/* ---- lists ---------------------------------------------------------------------------- */

void hy_fs_acl_done(struct hy_fs_acl *acl)
{
    for (size_t i = 0; i < acl->count; i++)
        free(acl->list[i].name);
    free(acl->list);
    free(acl->group);
    *acl = (struct hy_fs_acl){0};
}

int hy_fs_acl_add(struct hy_fs_acl *acl, enum hy_fs_acl_kind kind, bool is_default, const char *name, unsigned perm)
{
    struct hy_fs_acl_entry e = {.kind = kind, .is_default = is_default, .perm = perm & 7};

    if (acl->count == HY_FS_ACL_MAX)
        return -E2BIG;
    if (hy_array_grow(acl->list, acl->count) < 0 || (name && !(e.name = hy_strdup(name))))
        return -ENOMEM;
    acl->list[acl->count++] = e;
    return 0;
}

static void remove_at(struct hy_fs_acl *acl, size_t i)
{
    free(acl->list[i].name);
    acl->count--;
    memmove(acl->list + i, acl->list + i + 1, (acl->count - i) * sizeof *acl->list);
}

static bool same_name(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static struct hy_fs_acl_entry *find(const struct hy_fs_acl *acl, enum hy_fs_acl_kind kind, bool is_default,
                                    const char *name)
{
    for (size_t i = 0; i < acl->count; i++)
        if (acl->list[i].kind == kind && acl->list[i].is_default == is_default && same_name(acl->list[i].name, name))
            return &acl->list[i];
    return NULL;
}

/* Whether the mask limits it. */
static bool is_masked(const struct hy_fs_acl_entry *e, bool is_default)
{
    return e->is_default == is_default && (e->name || e->kind == HY_FS_ACL_GROUP);
}

bool hy_fs_acl_has_default(const struct hy_fs_acl *acl)
{
    for (size_t i = 0; i < acl->count; i++)
        if (acl->list[i].is_default)
            return true;
    return false;
}

void hy_fs_acl_drop_default(struct hy_fs_acl *acl)
{
    for (size_t i = acl->count; i > 0; i--)
        if (acl->list[i - 1].is_default)
            remove_at(acl, i - 1);
    acl->drops_default = true;
}

int hy_fs_acl_user(const struct hy_fs_acl *acl, bool is_default, const char *name)
{
    const struct hy_fs_acl_entry *e = find(acl, HY_FS_ACL_USER, is_default, name);
    const struct hy_fs_acl_entry *mask = find(acl, HY_FS_ACL_MASK, is_default, NULL);

    return e ? (int)(e->perm & (mask ? mask->perm : 7)) : -ENOENT;
}

/* Whether it is the entry of one of these groups. */
static bool is_group_of(const struct hy_fs_acl *acl, const struct hy_fs_acl_entry *e,
                        const struct hy_string_list *groups)
{
    const char *name = e->name ? e->name : acl->group;

    return e->kind == HY_FS_ACL_GROUP && !e->is_default && name && hy_string_list_has(groups, name);
}

unsigned hy_fs_acl_others(const struct hy_fs_acl *acl, const struct hy_string_list *groups)
{
    const struct hy_fs_acl_entry *mask = find(acl, HY_FS_ACL_MASK, false, NULL);
    const struct hy_fs_acl_entry *other = find(acl, HY_FS_ACL_OTHER, false, NULL);
    bool is_member = false;
    unsigned perm = 0;

    for (size_t i = 0; i < acl->count; i++)
        if (is_group_of(acl, &acl->list[i], groups)) {
            is_member = true;
            perm |= acl->list[i].perm & (mask ? mask->perm : 7);
        }
    return is_member || !other ? perm : other->perm;
}

/* ---- changes --------------------------------------------------------------------------- */

/* Copies the rights of owner, group and others to the default entries. */
static int make_default(struct hy_fs_acl *acl)
{
    const struct hy_fs_acl_entry *mask = find(acl, HY_FS_ACL_MASK, false, NULL);
    const unsigned limit = mask ? mask->perm : 7;
    int rc = 0;

    for (size_t i = 0, n = acl->count; i < n && rc == 0; i++) {
        const struct hy_fs_acl_entry e = acl->list[i];

        if (!e.is_default && !e.name && e.kind != HY_FS_ACL_MASK)
            rc = hy_fs_acl_add(acl, e.kind, true, NULL, e.kind == HY_FS_ACL_GROUP ? e.perm & limit : e.perm);
    }
    return rc;
}

/* Widens the mask so that it allows `perm`. */
static int widen_mask(struct hy_fs_acl *acl, bool is_default, unsigned perm)
{
    struct hy_fs_acl_entry *mask = find(acl, HY_FS_ACL_MASK, is_default, NULL);
    const struct hy_fs_acl_entry *group = find(acl, HY_FS_ACL_GROUP, is_default, NULL);

    if (!mask)
        return hy_fs_acl_add(acl, HY_FS_ACL_MASK, is_default, NULL, perm | (group ? group->perm : 0));
    if ((perm & ~mask->perm) == 0)
        return 0;
    for (size_t i = 0; i < acl->count; i++)
        if (is_masked(&acl->list[i], is_default))
            acl->list[i].perm &= mask->perm;
    mask->perm |= perm;
    return 0;
}

/* After an entry has lost rights: the mask is reduced to the rights that entries have, and removed with the last named
 * entry. */
static void narrow_mask(struct hy_fs_acl *acl, bool is_default)
{
    struct hy_fs_acl_entry *mask = find(acl, HY_FS_ACL_MASK, is_default, NULL);
    struct hy_fs_acl_entry *group = find(acl, HY_FS_ACL_GROUP, is_default, NULL);
    bool has_names = false;
    unsigned all = 0;

    if (!mask)
        return;
    for (size_t i = 0; i < acl->count; i++) {
        if (!is_masked(&acl->list[i], is_default))
            continue;
        all |= acl->list[i].perm;
        has_names = has_names || acl->list[i].name;
    }
    mask->perm &= all;
    if (has_names)
        return;
    if (group)
        group->perm &= mask->perm;
    remove_at(acl, (size_t)(mask - acl->list));
}

static int remove_user(struct hy_fs_acl *acl, bool is_default, const char *name)
{
    const struct hy_fs_acl_entry *e = find(acl, HY_FS_ACL_USER, is_default, name);

    if (!e)
        return 0;
    remove_at(acl, (size_t)(e - acl->list));
    narrow_mask(acl, is_default);
    return 1;
}

int hy_fs_acl_set_user(struct hy_fs_acl *acl, bool is_default, const char *name, int perm)
{
    struct hy_fs_acl_entry *e;
    int rc = 0;

    if (perm < 0)
        return remove_user(acl, is_default, name);
    if (hy_fs_acl_user(acl, is_default, name) == (perm & 7))
        return 0;
    if (is_default && !hy_fs_acl_has_default(acl))
        rc = make_default(acl);
    if (rc == 0)
        rc = widen_mask(acl, is_default, (unsigned)perm & 7);
    e = find(acl, HY_FS_ACL_USER, is_default, name);
    if (rc == 0 && !e)
        rc = hy_fs_acl_add(acl, HY_FS_ACL_USER, is_default, name, (unsigned)perm);
    else if (rc == 0) {
        e->perm = (unsigned)perm & 7;
        narrow_mask(acl, is_default);
    }
    return rc < 0 ? rc : 1;
}

/* ---- walks by URL ------------------------------------------------------------------------ */

struct acl_walk {
    const char *top;
    char *owner; /* of the top */
    hy_fs_acl_visit *visit;
    void *arg;
};

static int visit_url(const struct acl_walk *w, const char *path, const struct hy_fs_info *info, struct hy_err *err)
{
    hy_cleanup_free char *url = *path ? hy_fs_join(w->top, path) : hy_strdup(w->top);
    struct hy_fs_acl_node node = {.path = path,
                                  .is_dir = info->is_dir,
                                  .is_executable = (info->mode & 0100) != 0,
                                  .is_foreign = strcmp(info->owner, w->owner) != 0};
    int rc = url ? hy_fs_acl_get(url, &node.acl, err) : hy_err_oom(err);

    if (rc == 0)
        rc = w->visit(w->arg, &node, err);
    if (rc > 0)
        rc = hy_fs_acl_set(url, &node.acl, err);
    hy_fs_acl_done(&node.acl);
    return rc == -ENOENT && *path ? 0 : rc; /* removed since it was listed */
}

static int visit_entry(void *arg, const char *path, struct hy_fs_info *entry, struct hy_err *err)
{
    return entry->is_link ? 0 : visit_url(arg, path, entry, err);
}

int hy_fs_acl_walk_urls(const char *url, hy_fs_acl_visit *visit, void *arg, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info top = {0};
    struct acl_walk w = {.top = url, .visit = visit, .arg = arg};
    const struct hy_fs_walk how = {.visit = visit_entry, .arg = &w};
    int rc = hy_fs_stat(url, &top, err);

    if (rc < 0)
        return rc;
    w.owner = top.owner;
    rc = visit_url(&w, "", &top, err);
    return rc == 0 && top.is_dir ? hy_fs_walk(url, &how, err) : rc;
}
