/* SPDX-License-Identifier: Apache-2.0 */
/* Shares of the owner: each change is recorded before it is made. */
#include "share/share.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "fs/fs.h"
#include "share/grants.h"
#include "share/names.h"
#include "share/records.h"

void hy_share_report_done(struct hy_share_report *r)
{
    free(r->blocked);
    *r = (struct hy_share_report){0};
}

/* ---- users -------------------------------------------------------------------------------- */

/* The user: `with`, or the owner of that project. */
static int find_user(const char *with, char **ret, struct hy_err *err)
{
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc;

    if (!strchr(with, '/')) {
        *ret = hy_strdup(with);
        return *ret ? 0 : hy_err_oom(err);
    }
    rc = hy_fs_stat(with, &info, err);
    if (rc < 0)
        return hy_err_wrap(err, "cannot find the owner of the project; name the user instead");
    *ret = hy_take(info.owner);
    return 0;
}

/* Fills path, user, id and owner_id. */
static int begin(const struct hy_share_project *p, const char *path, const char *with, struct hy_share *s,
                 struct hy_err *err)
{
    int rc = hy_share_check_path(path, err);

    if (rc == 0 && !(s->path = hy_strdup(path)))
        rc = hy_err_oom(err);
    if (rc == 0)
        rc = find_user(with, &s->user, err);
    if (rc == 0)
        rc = hy_fs_acl_user_name(p->url, s->user, &s->id, err);
    return rc;
}

static int find_owner(const struct hy_share_project *p, struct hy_share *s, struct hy_err *err)
{
    hy_cleanup_free char *url = hy_fs_join(p->url, s->path);
    hy_cleanup_fs_info struct hy_fs_info info = {0};
    int rc = url ? hy_fs_stat(url, &info, err) : hy_err_oom(err);

    if (rc == 0 && !info.is_dir)
        return hy_err_set(err, -ENOTDIR, "%s is a file; share the directory that it is in", url);
    if (rc == 0)
        rc = hy_fs_acl_user_name(p->url, info.owner, &s->owner_id, err);
    if (rc == 0 && strcmp(s->owner_id, s->id) == 0)
        return hy_err_set(err, -EINVAL, "%s belongs to '%s', who needs no share of it", url, s->user);
    return rc;
}

/* ---- records ------------------------------------------------------------------------------- */

/* Its index in the list, or -ENOENT. */
static int find(const struct hy_shares *all, const struct hy_share *s)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->list[i].path, s->path) == 0 && strcmp(all->list[i].id, s->id) == 0)
            return (int)i;
    return -ENOENT;
}

/* The same by the name of the user: the account may not exist any more. */
static int find_by_text(const struct hy_shares *all, const char *path, const char *user)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->list[i].path, path) == 0 &&
            (strcmp(all->list[i].user, user) == 0 || strcmp(all->list[i].id, user) == 0))
            return (int)i;
    return -ENOENT;
}

/* One data set in another, both with the same user: which of the two an entry belongs to would be unknown. */
static int check_overlap(const struct hy_shares *all, const struct hy_share *s, struct hy_err *err)
{
    for (size_t i = 0; i < all->count; i++) {
        const struct hy_share *o = &all->list[i];

        if (strcmp(o->id, s->id) == 0 && (hy_share_is_below(o->path, s->path) || hy_share_is_below(s->path, o->path)))
            return hy_err_set(err, -EEXIST,
                              "'%s' is already shared with '%s', and one of the two directories contains the other; "
                              "remove that share first",
                              o->path, o->user);
    }
    return 0;
}

static int set_state(const struct hy_share_project *p, struct hy_shares *all, size_t i, enum hy_share_state state,
                     struct hy_err *err)
{
    all->list[i].state = state;
    return hy_share_records_save(p, all, err);
}

/* ---- steps: the record says what has to be completed after an interruption --------------------- */

static int revoke_share(const struct hy_share_project *p, struct hy_shares *all, size_t i, struct hy_share_report *r,
                        struct hy_err *err)
{
    int rc = all->list[i].state == HY_SHARE_REVOKING ? 0 : set_state(p, all, i, HY_SHARE_REVOKING, err);

    if (rc == 0)
        rc = hy_share_revoke(p->url, all, &all->list[i], r, err);
    if (rc < 0)
        return rc;
    hy_shares_remove(all, i);
    return hy_share_records_save(p, all, err);
}

static int grant_share(const struct hy_share_project *p, struct hy_shares *all, size_t i, struct hy_share_report *r,
                       struct hy_err *err)
{
    int rc = hy_share_grant(p->url, all, &all->list[i], r, err);

    return rc == 0 ? set_state(p, all, i, HY_SHARE_GRANTED, err) : rc;
}

static int complete(const struct hy_share_project *p, struct hy_shares *all, size_t i, struct hy_err *err)
{
    hy_cleanup_share_report struct hy_share_report r = {0};
    int rc = all->list[i].state == HY_SHARE_GRANTING ? grant_share(p, all, i, &r, err) : -ENOENT;

    if (rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP) /* to be revoked, or the data set does not exist any more */
        rc = revoke_share(p, all, i, &r, err);
    return rc;
}

/* A share that cannot be completed does not keep others from it: it stays as recorded. */
static int repair(const struct hy_share_project *p, struct hy_shares *all, struct hy_err *err)
{
    int count = 0, failed = 0;

    for (size_t i = all->count; i > 0; i--) {
        int rc;

        if (all->list[i - 1].state == HY_SHARE_GRANTED)
            continue;
        count++;
        rc = complete(p, all, i - 1, failed ? NULL : err);
        failed = failed ? failed : rc;
    }
    return failed < 0 ? failed : count;
}

/* Records a new share, with what the user could do before. */
static int record(const struct hy_share_project *p, struct hy_shares *all, struct hy_share *s, struct hy_err *err)
{
    int rc = check_overlap(all, s, err);

    if (rc == 0)
        rc = find_owner(p, s, err);
    if (rc == 0)
        rc = hy_share_scan(p->url, all, s, err);
    if (rc < 0)
        return rc;
    s->since_ms = hy_clock_wall_ms();
    rc = hy_shares_add(all, s, err);
    return rc == 0 ? hy_share_records_save(p, all, err) : rc;
}

/* A new share that could not be granted is revoked; one that was changed stays as recorded, to be repaired. */
static int undo(const struct hy_share_project *p, struct hy_shares *all, size_t i, int rc, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_strdup(all->list[i].path), *user = hy_strdup(all->list[i].user);
    hy_cleanup_share_report struct hy_share_report r = {0};
    struct hy_err why = {0};

    if (revoke_share(p, all, i, &r, &why) < 0 && err && path && user) { /* the record stays for hy_share_repair */
        struct hy_err first = *err;

        hy_err_set(err, rc, "%s. It could not be undone either: %s. Run: hopyard share remove '%s' --with %s",
                   first.text, why.text, path, user);
    }
    return rc;
}

static int add(const struct hy_share_project *p, struct hy_shares *all, struct hy_share *s, struct hy_share_report *r,
               struct hy_err *err)
{
    const bool is_writable = s->is_writable;
    int i = find(all, s), rc;
    const bool is_new = i < 0;

    rc = is_new ? record(p, all, s, err) : hy_share_check_contents(p->url, &all->list[i], err);
    if (rc == 0 && !is_new) {
        all->list[i].is_writable = is_writable;
        rc = set_state(p, all, (size_t)i, HY_SHARE_GRANTING, err);
    }
    i = is_new ? (int)all->count - 1 : i;
    if (rc < 0)
        return rc;
    rc = grant_share(p, all, (size_t)i, r, err);
    if (rc < 0)
        return is_new ? undo(p, all, (size_t)i, rc, err) : rc;
    return hy_share_find_blocked(p->url, &all->list[i], &r->blocked, err);
}

/* ---- calls ----------------------------------------------------------------------------------------- */

/* Locks and loads them. The lock, or -Exxx. */
static int open_records(const struct hy_share_project *p, struct hy_shares *all, struct hy_err *err)
{
    hy_cleanup_close int lock = hy_share_lock(p, err);
    int rc = lock < 0 ? lock : hy_share_records_load(p, all, err);

    return rc < 0 ? rc : hy_take_fd(lock);
}

int hy_share_add(const struct hy_share_project *p, const char *path, const char *with, bool is_writable,
                 struct hy_share_report *ret, struct hy_err *err)
{
    hy_cleanup_shares struct hy_shares all = {0};
    hy_cleanup_share_report struct hy_share_report r = {0};
    hy_cleanup_close int lock = open_records(p, &all, err);
    struct hy_share s = {.is_writable = is_writable};
    int rc = lock < 0 ? lock : begin(p, path, with, &s, err);

    if (rc == 0)
        (void)repair(p, &all, NULL); /* a failure is of another share: hy_share_repair reports it */
    if (rc == 0)
        rc = add(p, &all, &s, &r, err);
    hy_share_done(&s);
    if (rc < 0)
        return rc;
    *ret = r;
    r = (struct hy_share_report){0};
    return 0;
}

int hy_share_remove(const struct hy_share_project *p, const char *path, const char *with, struct hy_share_report *ret,
                    struct hy_err *err)
{
    hy_cleanup_shares struct hy_shares all = {0};
    hy_cleanup_close int lock = open_records(p, &all, err);
    struct hy_share_report r = {0};
    struct hy_share s = {0};
    int rc = lock < 0 ? lock : 0, i = rc < 0 ? rc : find_by_text(&all, path, with);

    if (rc == 0 && i < 0) {
        rc = begin(p, path, with, &s, err);
        i = rc < 0 ? rc : find(&all, &s);
    }
    if (rc == 0 && i < 0)
        rc = hy_err_set(err, -ENOENT, "'%s' is not shared with '%s'", path, s.user);
    if (rc == 0)
        rc = revoke_share(p, &all, (size_t)i, &r, err);
    hy_share_done(&s);
    if (rc == 0)
        *ret = r;
    return rc;
}

int hy_share_repair(const struct hy_share_project *p, struct hy_err *err)
{
    hy_cleanup_shares struct hy_shares all = {0};
    hy_cleanup_close int lock = open_records(p, &all, err);

    return lock < 0 ? lock : repair(p, &all, err);
}

int hy_share_list(const struct hy_share_project *p, struct hy_shares *ret, struct hy_err *err)
{
    return hy_share_records_load(p, ret, err);
}
