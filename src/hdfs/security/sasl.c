/* SPDX-License-Identifier: Apache-2.0 */
#include "hdfs/security/sasl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/mem.h"
#include "hdfs/security/sasl_mechanism.h"

static const struct {
    const char *name;
    enum hy_hdfs_qop qop;
} names[] = {
    {"authentication", HY_HDFS_QOP_AUTH},
    {"integrity", HY_HDFS_QOP_INTEGRITY},
    {"privacy", HY_HDFS_QOP_PRIVACY},
};

static enum hy_hdfs_qop qop_of(const char *name, size_t n)
{
    for (size_t i = 0; i < HY_COUNT(names); i++)
        if (strlen(names[i].name) == n && strncasecmp(names[i].name, name, n) == 0)
            return names[i].qop;
    return 0;
}

int hy_hdfs_qops_parse(const char *text, const char *key, struct hy_hdfs_qops *ret, struct hy_err *err)
{
    struct hy_hdfs_qops q = {0};

    for (const char *at = text ? text : "authentication"; *(at += strspn(at, ", \t\r\n"));) {
        const size_t n = strcspn(at, ", \t\r\n");
        const enum hy_hdfs_qop one = qop_of(at, n);

        if (!one)
            return hy_err_set(err, -EINVAL, "invalid %s '%s': expected authentication, integrity or privacy", key,
                              text);
        if (!hy_hdfs_qops_has(&q, one))
            q.all[q.count++] = one;
        at += n;
    }
    *ret = q;
    return q.count ? 0 : hy_err_set(err, -EINVAL, "%s is empty: expected authentication, integrity or privacy", key);
}

bool hy_hdfs_qops_has(const struct hy_hdfs_qops *q, enum hy_hdfs_qop one)
{
    for (size_t i = 0; i < q->count; i++)
        if (q->all[i] == one)
            return true;
    return false;
}

enum hy_hdfs_qop hy_hdfs_qops_choose(const struct hy_hdfs_qops *q, unsigned offered)
{
    for (size_t i = 0; i < q->count; i++)
        if (q->all[i] & offered)
            return q->all[i];
    return 0;
}

static const char *names_of(unsigned qops, char *out, size_t size)
{
    size_t n = 0;

    *out = '\0';
    for (size_t i = 0; i < HY_COUNT(names) && n < size; i++)
        if (qops & names[i].qop)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " or " : "", names[i].name);
    return n ? out : "none that is supported";
}

int hy_hdfs_sasl_negotiate_qop(struct hy_hdfs_sasl *s, unsigned offered, struct hy_err *err)
{
    char theirs[64], ours[64];
    unsigned wanted = 0;

    s->qop = hy_hdfs_qops_choose(&s->qops, offered);
    if (s->qop)
        return 0;
    for (size_t i = 0; i < s->qops.count; i++)
        wanted |= s->qops.all[i];
    return hy_err_set(err, -EACCES,
                      "its protection is %s, ours is %s; set hadoop.rpc.protection and"
                      " dfs.data.transfer.protection to the values of the cluster",
                      names_of(offered, theirs, sizeof(theirs)), names_of(wanted, ours, sizeof(ours)));
}

void hy_hdfs_sasl_free(struct hy_hdfs_sasl *s)
{
    if (s)
        s->ops->free(s);
}

int hy_hdfs_sasl_step(struct hy_hdfs_sasl *s, const uint8_t *challenge, size_t n, struct hy_buf *response,
                      struct hy_err *err)
{
    if (s->is_done)
        return hy_err_set(err, -EPROTO, "the server sent a challenge after the end of the authentication");
    return s->ops->step(s, challenge, n, response, err);
}

bool hy_hdfs_sasl_is_done(const struct hy_hdfs_sasl *s)
{
    return s->is_done;
}

enum hy_hdfs_qop hy_hdfs_sasl_qop(const struct hy_hdfs_sasl *s)
{
    return s->qop;
}

size_t hy_hdfs_sasl_wrap_max(const struct hy_hdfs_sasl *s)
{
    return s->wrap_max;
}

int hy_hdfs_sasl_wrap(struct hy_hdfs_sasl *s, const void *bytes, size_t n, struct hy_buf *out)
{
    return n > s->wrap_max ? -EMSGSIZE : s->ops->wrap(s, bytes, n, out);
}

int64_t hy_hdfs_sasl_unwrap(struct hy_hdfs_sasl *s, uint8_t *token, size_t n)
{
    return s->ops->unwrap(s, token, n);
}

char *hy_hdfs_base64(const uint8_t *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *text = n < SIZE_MAX / 2 ? hy_malloc((n + 2) / 3 * 4 + 1) : NULL, *out = text;

    if (!text)
        return NULL;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = n - i;
        const uint32_t v = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) |
                           (left > 2 ? (uint32_t)bytes[i + 2] : 0);

        *out++ = digits[v >> 18];
        *out++ = digits[v >> 12 & 63];
        *out++ = left > 1 ? digits[v >> 6 & 63] : '=';
        *out++ = left > 2 ? digits[v & 63] : '=';
    }
    *out = '\0';
    return text;
}
