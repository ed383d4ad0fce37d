/* SPDX-License-Identifier: Apache-2.0 */
#include "share/records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/private.h"
#include "share/names.h"

#define FILE_NAME "shares.json"
#define FILE_MAX (256u << 20)
#define SHARES_MAX 10000u

/* ---- in memory ------------------------------------------------------------------------- */

void hy_share_done(struct hy_share *s)
{
    for (size_t i = 0; i < s->prior_count; i++)
        free(s->priors[i].path);
    free(s->priors);
    free(s->path);
    free(s->user);
    free(s->id);
    free(s->owner_id);
    *s = (struct hy_share){0};
}

void hy_shares_done(struct hy_shares *s)
{
    for (size_t i = 0; i < s->count; i++)
        hy_share_done(&s->list[i]);
    free(s->list);
    *s = (struct hy_shares){0};
}

int hy_shares_add(struct hy_shares *list, struct hy_share *s, struct hy_err *err)
{
    if (list->count == SHARES_MAX)
        return hy_err_set(err, -E2BIG, "the project has %u shares, the maximum; remove some", SHARES_MAX);
    if (hy_array_grow(list->list, list->count) < 0)
        return hy_err_oom(err);
    list->list[list->count++] = *s;
    *s = (struct hy_share){0};
    return 0;
}

void hy_shares_remove(struct hy_shares *list, size_t i)
{
    hy_share_done(&list->list[i]);
    list->count--;
    memmove(list->list + i, list->list + i + 1, (list->count - i) * sizeof *list->list);
}

int hy_share_add_prior(struct hy_share *s, const struct hy_share_prior *prior, struct hy_err *err)
{
    struct hy_share_prior copy = *prior;

    if (s->prior_count == HY_SHARE_PRIORS_MAX)
        return hy_err_set(err, -E2BIG,
                          "more than %u files of '%s' have permissions of '%s' already, or defaults for new files; "
                          "share its subdirectories one by one",
                          HY_SHARE_PRIORS_MAX, s->path, s->user);
    if (hy_array_grow(s->priors, s->prior_count) < 0 || !(copy.path = hy_strdup(prior->path)))
        return hy_err_oom(err);
    s->priors[s->prior_count++] = copy;
    return 0;
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct hy_share_prior *)a)->path, ((const struct hy_share_prior *)b)->path);
}

void hy_share_sort_priors(struct hy_share *s)
{
    if (s->prior_count)
        qsort(s->priors, s->prior_count, sizeof *s->priors, by_path);
}

const struct hy_share_prior *hy_share_find_prior(const struct hy_share *s, const char *path)
{
    const struct hy_share_prior key = {.path = (char *)(uintptr_t)path};

    return s->prior_count ? bsearch(&key, s->priors, s->prior_count, sizeof key, by_path) : NULL;
}

/* ---- JSON --------------------------------------------------------------------------------- */

static const char *const states[] = {
    [HY_SHARE_GRANTING] = "granting", [HY_SHARE_GRANTED] = "granted", [HY_SHARE_REVOKING] = "revoking"};

static int parse_prior(json_t *json, struct hy_share *s, struct hy_err *err)
{
    struct hy_share_prior prior = {0};
    const char *path;
    int had_default;

    if (json_unpack_ex(json, NULL, JSON_STRICT, "{s:s, s:i, s:i, s:i, s:b}", "path", &path, "access", &prior.access,
                       "on_new", &prior.on_new, "owner_on_new", &prior.owner_on_new, "default", &had_default) < 0 ||
        prior.access < -1 || prior.access > 7 || prior.on_new < -1 || prior.on_new > 7 || prior.owner_on_new < -1 ||
        prior.owner_on_new > 7)
        return -EINVAL;
    prior.path = (char *)(uintptr_t)path;
    prior.had_default = had_default;
    return hy_share_add_prior(s, &prior, err);
}

static int find_state(const char *text)
{
    for (size_t i = 0; i < HY_COUNT(states); i++)
        if (strcmp(states[i], text) == 0)
            return (int)i;
    return -EINVAL;
}

static int parse_share(json_t *json, struct hy_share *s, struct hy_err *err)
{
    const char *path, *user, *id, *owner_id, *state;
    json_t *priors, *prior;
    json_int_t since;
    size_t i;
    int write, rc = 0;

    if (json_unpack_ex(json, NULL, JSON_STRICT, "{s:s, s:s, s:s, s:s, s:b, s:s, s:I, s:o}", "path", &path, "user",
                       &user, "id", &id, "owner_id", &owner_id, "write", &write, "state", &state, "since_ms", &since,
                       "prior", &priors) < 0 ||
        !json_is_array(priors) || find_state(state) < 0 || hy_share_check_path(path, NULL) < 0)
        return -EINVAL;
    *s = (struct hy_share){.path = hy_strdup(path),
                           .user = hy_strdup(user),
                           .id = hy_strdup(id),
                           .owner_id = hy_strdup(owner_id),
                           .is_writable = write,
                           .state = (enum hy_share_state)find_state(state),
                           .since_ms = since};
    if (!s->path || !s->user || !s->id || !s->owner_id)
        return hy_err_oom(err);
    json_array_foreach(priors, i, prior)
    {
        if (rc == 0)
            rc = parse_prior(prior, s, err);
    }
    hy_share_sort_priors(s);
    return rc;
}

static int parse_shares(json_t *root, struct hy_shares *ret, struct hy_err *err)
{
    json_t *list, *item;
    size_t i;
    int version, rc = 0;

    if (json_unpack_ex(root, NULL, JSON_STRICT, "{s:i, s:o}", "version", &version, "shares", &list) < 0 ||
        version != 1 || !json_is_array(list))
        return -EINVAL;
    json_array_foreach(list, i, item)
    {
        struct hy_share s = {0};

        if (rc < 0)
            break;
        rc = parse_share(item, &s, err);
        if (rc == 0)
            rc = hy_shares_add(ret, &s, err);
        hy_share_done(&s);
    }
    return rc;
}

int hy_share_records_parse(const char *text, size_t n, struct hy_shares *ret, struct hy_err *err)
{
    hy_cleanup_json json_t *root = hy_json_load(text, n, JSON_REJECT_DUPLICATES, NULL);
    hy_cleanup_shares struct hy_shares s = {0};
    int rc = root ? parse_shares(root, &s, err) : -EINVAL;

    if (rc == -EINVAL)
        return hy_err_set(
            err, rc, "the record of shares, " FILE_NAME ", is damaged or was written by a newer version of hopyard");
    if (rc < 0)
        return rc;
    *ret = s;
    s = (struct hy_shares){0};
    return 0;
}

static json_t *format_priors(const struct hy_share *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->prior_count; i++) {
        const struct hy_share_prior *p = &s->priors[i];
        json_t *item = json_pack("{s:s, s:i, s:i, s:i, s:b}", "path", p->path, "access", p->access, "on_new", p->on_new,
                                 "owner_on_new", p->owner_on_new, "default", (int)p->had_default);

        if (!item || json_array_append_new(list, item) < 0) {
            json_decref(list);
            return NULL;
        }
    }
    return list;
}

/* NULL: out of memory, or a path is not UTF-8. */
static char *format_shares(const struct hy_shares *s)
{
    hy_cleanup_json json_t *list = json_array(), *root = NULL;

    for (size_t i = 0; i < s->count; i++) {
        const struct hy_share *e = &s->list[i];
        json_t *item = json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:I, s:o}", "path", e->path, "user", e->user, "id",
                                 e->id, "owner_id", e->owner_id, "write", (int)e->is_writable, "state",
                                 states[e->state], "since_ms", (json_int_t)e->since_ms, "prior", format_priors(e));

        if (!item || json_array_append_new(list, item) < 0)
            return NULL;
    }
    root = json_pack("{s:i, s:O}", "version", 1, "shares", list);
    return root ? hy_json_dump(root, JSON_INDENT(1)) : NULL;
}

/* ---- the file ------------------------------------------------------------------------------- */

int hy_share_records_load(const struct hy_share_project *p, struct hy_shares *ret, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(p->path, FILE_NAME);
    hy_cleanup_buf struct hy_buf text;
    struct hy_err why = {0};
    int rc;

    hy_json_init();
    hy_buf_init(&text, FILE_MAX);
    rc = path ? hy_private_read(p->dir, path, &text, &why) : hy_err_oom(&why);
    if (rc == -ENOENT) {
        *ret = (struct hy_shares){0};
        return 0;
    }
    if (rc < 0 && err)
        *err = why;
    return rc < 0 ? rc : hy_share_records_parse((const char *)hy_buf_bytes(&text), text.len, ret, err);
}

int hy_share_records_save(const struct hy_share_project *p, const struct hy_shares *s, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(p->path, FILE_NAME);
    hy_cleanup_free char *text = NULL;

    hy_json_init();
    text = format_shares(s);
    if (!path || !text)
        return hy_err_set(err, -ENOMEM,
                          "cannot record the share: out of memory, or the name of a file in it is not UTF-8");
    return hy_private_write(p->dir, path, text, strlen(text), err);
}

int hy_share_lock(const struct hy_share_project *p, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_path_join(p->path, "shares.lock");
    hy_cleanup_close int fd = path ? hy_private_open(p->dir, path, O_RDWR | O_CREAT, err) : hy_err_oom(err);
    int rc;

    if (fd < 0)
        return fd;
    do
        rc = HY_SYS(flock(fd, LOCK_EX));
    while (rc < 0 && errno == EINTR);
    return rc < 0 ? hy_err_sys(err, -errno, "cannot lock '%s'", path) : hy_take_fd(fd);
}
