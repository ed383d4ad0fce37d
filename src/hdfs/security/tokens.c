/* SPDX-License-Identifier: Apache-2.0 */
/*
 *     "HDTS"  version: 0 Writable, 1 protobuf
 *
 *     0   count, then for each token   name  identifier  password  kind  service
 *         count, then for each secret  name  secret             (keys of other systems: ignored)
 *         All but the counts are a length and as many bytes; numbers are Hadoop's varints.
 *     1   a delimited Credentials message
 */
#include "hdfs/security/tokens.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "hdfs/rpc/rpc.h"

#define FILE_MAX (16u << 20)
#define TOKENS_MAX 10000

struct rest {
    const uint8_t *at;
    size_t n;
};

/*
 * A varint of Hadoop's WritableUtils. A first byte from -112 to 127 is the value.
 * Below that it gives the number of bytes that follow, big-endian: from -113 down
 * 1 to 8 bytes of a non-negative value, from -121 down of a negative one.
 */
static int take_number(struct rest *r, int64_t *ret)
{
    uint64_t value = 0;
    int8_t first;
    size_t bytes;

    if (r->n == 0)
        return -EINVAL;
    first = (int8_t)*r->at++;
    r->n--;
    if (first >= -112) {
        *ret = first;
        return 0;
    }
    bytes = (size_t)(first < -120 ? -120 - first : -112 - first);
    if (bytes > r->n)
        return -EINVAL;
    for (size_t i = 0; i < bytes; i++)
        value = value << 8 | r->at[i];
    r->at += bytes;
    r->n -= bytes;
    *ret = (int64_t)(first < -120 ? ~value : value);
    return 0;
}

static int take_bytes(struct rest *r, struct rest *ret)
{
    int64_t n;
    int rc = take_number(r, &n);

    if (rc < 0 || n < 0 || (uint64_t)n > r->n)
        return -EINVAL;
    *ret = (struct rest){.at = r->at, .n = (size_t)n};
    r->at += n;
    r->n -= (size_t)n;
    return 0;
}

static int copy_bytes(const struct rest *r, ProtobufCBinaryData *to)
{
    to->data = hy_malloc(r->n ? r->n : 1);
    if (!to->data)
        return -ENOMEM;
    memcpy(to->data, r->at, r->n);
    to->len = r->n;
    return 0;
}

static int take_token(struct rest *r, Hdfs__Token *t)
{
    struct rest name, identifier, password, kind, service;

    if (take_bytes(r, &name) < 0 || take_bytes(r, &identifier) < 0 || take_bytes(r, &password) < 0 ||
        take_bytes(r, &kind) < 0 || take_bytes(r, &service) < 0)
        return -EINVAL;
    t->kind = hy_strndup((const char *)kind.at, kind.n);
    t->service = hy_strndup((const char *)service.at, service.n);
    if (!t->kind || !t->service || copy_bytes(&identifier, &t->identifier) < 0)
        return -ENOMEM;
    return copy_bytes(&password, &t->password);
}

static int add(struct hy_hdfs_tokens *t, Hdfs__Token **ret)
{
    if (hy_array_grow(t->all, t->count) < 0)
        return -ENOMEM;
    *ret = hy_calloc(1, sizeof(**ret));
    if (!*ret)
        return -ENOMEM;
    hdfs__token__init(*ret);
    t->all[t->count++] = *ret;
    return 0;
}

static int parse_writable(struct rest r, struct hy_hdfs_tokens *ret)
{
    Hdfs__Token *token;
    int64_t count;
    int rc = take_number(&r, &count);

    if (rc == 0 && (count < 0 || count > TOKENS_MAX))
        rc = -EINVAL;
    for (int64_t i = 0; rc == 0 && i < count; i++) {
        rc = add(ret, &token);
        if (rc == 0)
            rc = take_token(&r, token);
    }
    return rc;
}

static int parse_protobuf(struct rest r, struct hy_hdfs_tokens *ret)
{
    Hdfs__Credentials *c;
    uint32_t n;
    int rc = hy_hdfs_delimited_length(r.at, r.n, &n);

    if (rc <= 0 || n > r.n - (size_t)rc)
        return -EINVAL;
    c = hdfs__credentials__unpack(NULL, n, r.at + rc);
    if (!c)
        return -EINVAL;
    rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n_tokens; i++) {
        Hdfs__Token *token;

        if (!c->tokens[i]->token)
            continue;
        rc = add(ret, &token);
        if (rc == 0) { /* swaps them: the empty one is freed with the message */
            const Hdfs__Token empty = *token;

            *token = *c->tokens[i]->token;
            *c->tokens[i]->token = empty;
        }
    }
    hdfs__credentials__free_unpacked(c, NULL);
    return rc;
}

int hy_hdfs_tokens_parse(const uint8_t *bytes, size_t n, const char *name, struct hy_hdfs_tokens *ret,
                         struct hy_err *err)
{
    struct hy_hdfs_tokens t = {0};
    int rc;

    if (n < 5 || memcmp(bytes, "HDTS", 4) != 0)
        return hy_err_set(err, -EINVAL, "%s is not a Hadoop token file", name);
    if (bytes[4] > 1)
        return hy_err_set(err, -EINVAL, "%s is a token file of version %d; only 0 and 1 are supported", name, bytes[4]);
    rc = (bytes[4] ? parse_protobuf : parse_writable)((struct rest){.at = bytes + 5, .n = n - 5}, &t);
    if (rc == 0) {
        *ret = t;
        return 0;
    }
    hy_hdfs_tokens_done(&t);
    return rc == -ENOMEM ? hy_err_set(err, rc, "out of memory for the tokens of %s", name)
                         : hy_err_set(err, rc, "the token file %s is damaged or truncated", name);
}

int hy_hdfs_tokens_load(struct hy_hdfs_tokens *ret, struct hy_err *err)
{
    const char *path = getenv("HADOOP_TOKEN_FILE_LOCATION");
    hy_cleanup_buf struct hy_buf bytes;
    int rc;

    hy_buf_init(&bytes, FILE_MAX);
    *ret = (struct hy_hdfs_tokens){0};
    if (!path || !*path)
        return 0;
    rc = hy_file_read(path, &bytes);
    if (rc < 0) /* not -ENOENT, which would refer to the file on HDFS */
        return hy_err_set(err, rc == -ENOMEM ? rc : -EACCES,
                          "cannot read the token file of $HADOOP_TOKEN_FILE_LOCATION, %s: %s", path, strerror(-rc));
    return hy_hdfs_tokens_parse(hy_buf_bytes(&bytes), bytes.len, path, ret, err);
}

void hy_hdfs_tokens_done(struct hy_hdfs_tokens *t)
{
    for (size_t i = 0; i < t->count; i++)
        hdfs__token__free_unpacked(t->all[i], NULL);
    free(t->all);
    *t = (struct hy_hdfs_tokens){0};
}

const Hdfs__Token *hy_hdfs_tokens_find(const struct hy_hdfs_tokens *t, const char *kind, const char *service)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->all[i]->kind, kind) == 0 && strcmp(t->all[i]->service, service) == 0)
            return t->all[i];
    return NULL;
}
