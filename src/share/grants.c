/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's own entry replaces what its groups and others may do. So an entry of a
 * share also has those rights, and a directory above the data set gets one only if
 * the user cannot pass through it without one.
 *
 * In a writable data set the owner gets a default entry, too: without it, the owner
 * could not access files that the user creates there.
 */
#include "share/grants.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "base/string_list.h"
#include "fs/fs.h"
#include "share/names.h"
#include "share/records.h"

struct grant {
    const char *project;
    const struct hy_shares *all; /* NULL: not needed */
    const struct hy_share *share;
    struct hy_share *scanned; /* the share, by hy_share_scan */
    struct hy_share_report *report;
    struct hy_string_list groups;
};

/* The path of a node relative to the project. */
static char *node_path(const struct grant *g, const struct hy_fs_acl_node *node)
{
    return *node->path ? hy_asprintf("%s/%s", g->share->path, node->path) : hy_strdup(g->share->path);
}

/* ---- entries that other shares need ------------------------------------------------------- */

static bool is_other(const struct grant *g, const struct hy_share *s)
{
    return strcmp(s->path, g->share->path) != 0 || strcmp(s->id, g->share->id) != 0;
}

/* Another share of a data set that contains `path`; a writable one, if required. NULL: none. */
static const struct hy_share *covering(const struct grant *g, const char *path, bool writable)
{
    for (size_t i = 0; i < g->all->count; i++) {
        const struct hy_share *s = &g->all->list[i];

        if (is_other(g, s) && hy_share_is_below(path, s->path) && (s->is_writable || !writable))
            return s;
    }
    return NULL;
}

/* Another share with the same user of a data set below `directory`. */
static const struct hy_share *passing(const struct grant *g, const char *directory)
{
    for (size_t i = 0; i < g->all->count; i++) {
        const struct hy_share *s = &g->all->list[i];

        if (is_other(g, s) && strcmp(s->id, g->share->id) == 0 && hy_share_is_below(s->path, directory))
            return s;
    }
    return NULL;
}

/* ---- directories above the data set --------------------------------------------------------- */

typedef int on_parent(struct grant *g, const char *path, const char *url, struct hy_err *err);

/* From the project down to the parent of the data set. */
static int each_parent(struct grant *g, on_parent *act, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_strdup(g->share->path);
    int rc = path ? act(g, "", g->project, err) : hy_err_oom(err);

    for (char *slash = path; rc == 0 && (slash = strchr(slash, '/')); *slash++ = '/') {
        hy_cleanup_free char *url = NULL;

        *slash = '\0';
        url = hy_fs_join(g->project, path);
        rc = url ? act(g, path, url, err) : hy_err_oom(err);
    }
    return rc;
}

static int scan_parent(struct grant *g, const char *path, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};
    const struct hy_share *other = passing(g, path);
    const struct hy_share_prior *known = other ? hy_share_find_prior(other, path) : NULL;
    struct hy_share_prior prior = {.path = (char *)(uintptr_t)path, .on_new = -1, .owner_on_new = -1};
    int rc = hy_fs_acl_get(url, &acl, err);

    if (rc < 0)
        return rc;
    prior.access = other ? known ? known->access : -1 : hy_fs_acl_user(&acl, false, g->share->id);
    return prior.access < 0 ? 0 : hy_share_add_prior(g->scanned, &prior, err);
}

static int grant_parent(struct grant *g, const char *path, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};
    const struct hy_share_prior *prior = hy_share_find_prior(g->share, path);
    unsigned base;
    int own, rc = hy_fs_acl_get(url, &acl, err);

    if (rc < 0)
        return rc;
    own = hy_fs_acl_user(&acl, false, g->share->id);
    base = prior ? (unsigned)prior->access : hy_fs_acl_others(&acl, &g->groups);
    if ((own < 0 ? base : (unsigned)own) & X_OK)
        return 0;
    rc = hy_fs_acl_set_user(&acl, false, g->share->id, (int)(base | X_OK));
    if (rc == 1)
        rc = hy_fs_acl_set(url, &acl, err);
    else if (rc < 0)
        return hy_err_sys(err, rc, "cannot change the permissions of %s", url);
    g->report->changed += rc == 0;
    return rc < 0 ? hy_err_wrap(err, "'%s' must be able to pass through %s", g->share->user, url) : 0;
}

static int revoke_parent(struct grant *g, const char *path, const char *url, struct hy_err *err)
{
    hy_cleanup_fs_acl struct hy_fs_acl acl = {0};
    const struct hy_share_prior *prior = hy_share_find_prior(g->share, path);
    int rc;

    if (passing(g, path))
        return 0;
    rc = hy_fs_acl_get(url, &acl, err);
    if (rc == -ENOENT)
        return 0;
    if (rc == 0)
        rc = hy_fs_acl_set_user(&acl, false, g->share->id, prior ? prior->access : -1);
    if (rc == 1 && (rc = hy_fs_acl_set(url, &acl, err)) == 0)
        g->report->changed++;
    return rc;
}

/* ---- the data set ----------------------------------------------------------------------------- */

/* Whether a node is hopyard's own data, or is in a directory of it. */
static bool is_private(const struct hy_fs_acl_node *node)
{
    for (const char *name = node->path; *name; name += strcspn(name, "/"), name += *name == '/') {
        char part[16]; /* longer than what it is compared with */
        size_t n = strcspn(name, "/");

        n = n < sizeof part ? n : sizeof part - 1;
        memcpy(part, name, n);
        part[n] = '\0';
        if (hy_share_is_private(part))
            return true;
    }
    return false;
}

static int refuse_private(void *arg, struct hy_fs_acl_node *node, struct hy_err *err)
{
    const struct grant *g = arg;

    if (!is_private(node))
        return 0;
    return hy_err_set(err, -EPERM, "'%s' contains hopyard's own data ('%s/%s') and cannot be shared", g->share->path,
                      g->share->path, node->path);
}

static int scan_node(void *arg, struct hy_fs_acl_node *node, struct hy_err *err)
{
    struct grant *g = arg;
    hy_cleanup_free char *path = node_path(g, node);
    const struct hy_share *with_default = path ? covering(g, path, false) : NULL;
    const struct hy_share *writable = path ? covering(g, path, true) : NULL;
    const struct hy_share_prior *known = with_default ? hy_share_find_prior(with_default, path) : NULL;
    const struct hy_share_prior *known_owner = writable ? hy_share_find_prior(writable, path) : NULL;
    struct hy_share_prior prior = {.path = path};
    int rc = path ? refuse_private(g, node, err) : hy_err_oom(err);

    if (rc < 0 || node->is_foreign)
        return rc;
    prior.access = hy_fs_acl_user(&node->acl, false, g->share->id);
    prior.on_new = hy_fs_acl_user(&node->acl, true, g->share->id);
    prior.owner_on_new = writable ? known_owner ? known_owner->owner_on_new : -1
                                  : hy_fs_acl_user(&node->acl, true, g->share->owner_id);
    prior.had_default = with_default ? known && known->had_default : hy_fs_acl_has_default(&node->acl);
    prior.access = prior.access < 0 ? -1 : prior.access;
    prior.on_new = prior.on_new < 0 ? -1 : prior.on_new;
    prior.owner_on_new = prior.owner_on_new < 0 ? -1 : prior.owner_on_new;
    if (prior.access < 0 && prior.on_new < 0 && prior.owner_on_new < 0 && !prior.had_default)
        return 0;
    return hy_share_add_prior(g->scanned, &prior, err);
}

/* Sets one entry. The result of both: 1 if one has changed the list. */
static int set_entry(struct hy_fs_acl *acl, bool is_default, const char *name, int perm, int *changed)
{
    int rc = hy_fs_acl_set_user(acl, is_default, name, perm);

    *changed |= rc > 0;
    return rc < 0 ? rc : 0;
}

static int explain(const struct grant *g, int rc, struct hy_err *err)
{
    return rc < 0 ? hy_err_sys(err, rc, "cannot change the permissions of '%s'", g->share->path) : rc;
}

static unsigned rights_of(const struct hy_share *s, const struct hy_fs_acl_node *node)
{
    const unsigned content = R_OK | (s->is_writable ? W_OK : 0);

    return content | (node->is_dir || node->is_executable ? X_OK : 0);
}

/* To what it was before the share; the grant of a share that was writable has left an entry. */
static int restore_owner_default(const struct grant *g, const char *path, const struct hy_share_prior *prior,
                                 struct hy_fs_acl *acl, int *changed)
{
    if (covering(g, path, true))
        return 0;
    return set_entry(acl, true, g->share->owner_id, prior ? prior->owner_on_new : -1, changed);
}

static int grant_node(void *arg, struct hy_fs_acl_node *node, struct hy_err *err)
{
    struct grant *g = arg;
    hy_cleanup_free char *path = node_path(g, node);
    const struct hy_share *s = g->share;
    const struct hy_share_prior *prior = path ? hy_share_find_prior(s, path) : NULL;
    const unsigned rights = rights_of(s, node);
    const unsigned before = prior && prior->access >= 0 ? (unsigned)prior->access
                                                        : hy_fs_acl_others(&node->acl, &g->groups);
    int changed = 0, rc;

    if (!path)
        return hy_err_oom(err);
    if (is_private(node)) /* a project that was made in the data set since */
        return 0;
    if (node->is_foreign) {
        g->report->foreign++;
        return 0;
    }
    rc = set_entry(&node->acl, false, s->id, (int)(rights | before), &changed);
    if (rc == 0 && node->is_dir)
        rc = set_entry(&node->acl, true, s->id, (int)rights | (prior && prior->on_new > 0 ? prior->on_new : 0),
                       &changed);
    if (rc == 0 && node->is_dir)
        rc = s->is_writable ? set_entry(&node->acl, true, s->owner_id, R_OK | W_OK | X_OK, &changed)
                            : restore_owner_default(g, path, prior, &node->acl, &changed);
    g->report->changed += (uint64_t)changed;
    return explain(g, rc < 0 ? rc : changed, err);
}

static bool has_default_names(const struct hy_fs_acl *acl)
{
    for (size_t i = 0; i < acl->count; i++)
        if (acl->list[i].is_default && acl->list[i].name)
            return true;
    return false;
}

/* Default entries of a directory that the share, or one before it, has made. */
static int revoke_default(const struct grant *g, const char *path, const struct hy_share_prior *prior,
                          struct hy_fs_acl *acl, int *changed)
{
    int rc = set_entry(acl, true, g->share->id, prior ? prior->on_new : -1, changed);

    if (rc == 0 && g->share->is_writable)
        rc = restore_owner_default(g, path, prior, acl, changed);
    if (rc == 0 && !(prior && prior->had_default) && !covering(g, path, false) && hy_fs_acl_has_default(acl) &&
        !has_default_names(acl)) {
        hy_fs_acl_drop_default(acl);
        *changed = 1;
    }
    return rc;
}

static int revoke_node(void *arg, struct hy_fs_acl_node *node, struct hy_err *err)
{
    struct grant *g = arg;
    hy_cleanup_free char *path = node_path(g, node);
    const struct hy_share_prior *prior = path ? hy_share_find_prior(g->share, path) : NULL;
    int changed = 0, rc;

    if (!path)
        return hy_err_oom(err);
    if (node->is_foreign) {
        g->report->foreign++;
        return 0;
    }
    rc = set_entry(&node->acl, false, g->share->id, prior ? prior->access : -1, &changed);
    if (rc == 0 && node->is_dir)
        rc = revoke_default(g, path, prior, &node->acl, &changed);
    g->report->changed += (uint64_t)changed;
    return explain(g, rc < 0 ? rc : changed, err);
}

/* ---- whole shares ------------------------------------------------------------------------------- */

static int walk(struct grant *g, hy_fs_acl_visit *visit, struct hy_err *err)
{
    hy_cleanup_free char *url = hy_fs_join(g->project, g->share->path);

    return url ? hy_fs_acl_walk(url, visit, g, err) : hy_err_oom(err);
}

int hy_share_scan(const char *project, const struct hy_shares *all, struct hy_share *s, struct hy_err *err)
{
    struct grant g = {.project = project, .all = all, .share = s, .scanned = s};
    int rc = each_parent(&g, scan_parent, err);

    if (rc == 0)
        rc = walk(&g, scan_node, err);
    hy_share_sort_priors(s);
    return rc;
}

int hy_share_check_contents(const char *project, const struct hy_share *s, struct hy_err *err)
{
    struct grant g = {.project = project, .share = s};

    return walk(&g, refuse_private, err);
}

/* The data set first: without the right to pass, nothing of an incomplete grant can be used. */
int hy_share_grant(const char *project, const struct hy_shares *all, const struct hy_share *s,
                   struct hy_share_report *r, struct hy_err *err)
{
    struct grant g = {.project = project, .all = all, .share = s, .report = r};
    int rc = hy_fs_acl_groups(project, s->user, &g.groups, err);

    if (rc == 0)
        rc = walk(&g, grant_node, err);
    if (rc == 0)
        rc = each_parent(&g, grant_parent, err);
    hy_string_list_done(&g.groups);
    return rc;
}

int hy_share_revoke(const char *project, const struct hy_shares *all, const struct hy_share *s,
                    struct hy_share_report *r, struct hy_err *err)
{
    struct grant g = {.project = project, .all = all, .share = s, .report = r};
    int rc = each_parent(&g, revoke_parent, err);

    if (rc == 0)
        rc = walk(&g, revoke_node, err);
    r->is_missing = rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP; /* removed, or a file or a link is in its place */
    return r->is_missing ? 0 : rc;
}

int hy_share_find_blocked(const char *project, const struct hy_share *s, char **ret, struct hy_err *err)
{
    hy_cleanup_free char *at = hy_strdup(project);
    hy_cleanup_string_list struct hy_string_list groups = {0};
    int rc = at ? hy_fs_acl_groups(project, s->user, &groups, err) : hy_err_oom(err);

    *ret = NULL;
    while (rc == 0 && strlen(at) > hy_url_root(at)) {
        hy_cleanup_fs_acl struct hy_fs_acl acl = {0};
        char *above = hy_url_parent(at);

        free(at);
        at = above;
        if (!at)
            return hy_err_oom(err);
        if (hy_fs_acl_get(at, &acl, NULL) < 0) /* not the owner's, or without ACLs: unknown */
            continue;
        if (!((hy_fs_acl_user(&acl, false, s->id) < 0 ? (int)hy_fs_acl_others(&acl, &groups)
                                                      : hy_fs_acl_user(&acl, false, s->id)) &
              X_OK)) {
            *ret = hy_take(at);
            return 0;
        }
    }
    return rc;
}
