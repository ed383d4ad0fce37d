/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of a group with 3 data units, 2 parity units and cells of 1 MiB:
 *
 *     unit     0   1   2   3   4       each unit is a block, whose id is the
 *     stripe   a   b   c   P   Q       id of the group plus the unit's number
 *              d   e   f   P   Q
 *              g   h               <- the last stripe may be shorter, also within a
 *                                     cell; for its parity it is padded with zeros
 *
 * Each unit has a separate stream, so that all DataNodes send at once.
 */
#include "hdfs/data/striped_reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "hdfs/data/block_reader.h"
#include "hdfs/cluster.h"
#include "hdfs/data/erasure_code.h"

struct unit {
    struct hy_hdfs_block_reader *reader;
    Hdfs__ExtendedBlock block;
    const Hdfs__Token *token;
    const Hdfs__DatanodeID *node; /* NULL: not available */
    bool is_bad;
};

struct hy_hdfs_striped_reader {
    struct hy_hdfs_cluster *cluster;
    struct hy_hdfs_ec code;
    uint64_t cell;
    int timeout_ms;
    const Hdfs__LocatedBlock *group; /* the group of `units` */
    struct unit units[HY_HDFS_EC_UNITS_MAX];
};

/* The built-in policies of Hadoop: the NameNode sends only their number. All have cells of 1 MiB. */
static const struct {
    uint32_t id;
    const char *codec;
    unsigned data, parity;
} builtin_policies[] = {{1, "rs", 6, 3}, {2, "rs", 3, 2}, {3, "rs-legacy", 6, 3}, {4, "xor", 2, 1}, {5, "rs", 10, 4}};

static int set_up(struct hy_hdfs_striped_reader *s, const Hdfs__ErasureCodingPolicy *policy)
{
    const Hdfs__ECSchema *schema = policy->schema;

    s->cell = policy->cellsize ? policy->cellsize : 1u << 20;
    if (schema)
        return hy_hdfs_ec_init(&s->code, schema->codecname, schema->dataunits, schema->parityunits);
    for (size_t i = 0; i < HY_COUNT(builtin_policies) && !schema; i++)
        if (builtin_policies[i].id == policy->id)
            return hy_hdfs_ec_init(&s->code, builtin_policies[i].codec, builtin_policies[i].data,
                                   builtin_policies[i].parity);
    return -ENOTSUP;
}

struct hy_hdfs_striped_reader *hy_hdfs_striped_reader_new(struct hy_hdfs_cluster *c,
                                                          const Hdfs__ErasureCodingPolicy *policy, int timeout_ms,
                                                          struct hy_err *err)
{
    struct hy_hdfs_striped_reader *s = hy_calloc(1, sizeof(*s));

    if (!s) {
        hy_err_oom(err);
        return NULL;
    }
    s->cluster = c;
    s->timeout_ms = timeout_ms;
    if (set_up(s, policy) < 0) {
        hy_err_set(err, -ENOTSUP, "its erasure coding policy %u%s%s is not supported (only XOR and RS are)", policy->id,
                   policy->name ? ", " : "", policy->name ? policy->name : "");
        free(s);
        return NULL;
    }
    return s;
}

void hy_hdfs_striped_reader_reset(struct hy_hdfs_striped_reader *s)
{
    for (unsigned i = 0; i < HY_HDFS_EC_UNITS_MAX; i++)
        hy_hdfs_block_reader_close(s->units[i].reader);
    memset(s->units, 0, sizeof(s->units));
    s->group = NULL;
}

void hy_hdfs_striped_reader_free(struct hy_hdfs_striped_reader *s)
{
    if (s)
        hy_hdfs_striped_reader_reset(s);
    free(s);
}

/* The length of a unit; a parity unit is as long as the first unit. */
static uint64_t length_of(const struct hy_hdfs_striped_reader *s, uint64_t size, unsigned unit)
{
    const uint64_t stripe = s->cell * s->code.data, rest = size % stripe;
    const uint64_t before = (unit < s->code.data ? unit : 0) * s->cell;
    const uint64_t more = rest <= before ? 0 : rest - before < s->cell ? rest - before : s->cell;

    return size / stripe * s->cell + more;
}

static void set_group(struct hy_hdfs_striped_reader *s, const Hdfs__LocatedBlock *group)
{
    if (s->group == group)
        return;
    hy_hdfs_striped_reader_reset(s);
    s->group = group;
    for (size_t i = 0; i < group->n_locs && i < group->blockindices.len; i++) {
        const unsigned number = group->blockindices.data[i];
        struct unit *u = &s->units[number < s->code.data + s->code.parity ? number : 0];

        if (number >= s->code.data + s->code.parity || u->node)
            continue;
        u->block = *group->b;
        u->block.blockid += number;
        u->block.numbytes = length_of(s, group->b->numbytes, number);
        u->token = i < group->n_blocktokens ? group->blocktokens[i] : group->blocktoken;
        u->node = group->locs[i]->id;
    }
}

/* Reads n bytes of a unit, or fails. */
static int read_unit(struct hy_hdfs_striped_reader *s, struct unit *u, uint8_t *into, size_t n, uint64_t at,
                     struct hy_err *err)
{
    int64_t got = 0;

    if (!u->node || u->is_bad)
        return hy_err_set(err, -ENODATA, "a unit of its block group is not available");
    if (u->reader && hy_hdfs_block_reader_offset(u->reader) != at)
        hy_hdfs_block_reader_close(hy_take(u->reader));
    if (!u->reader) {
        const struct hy_hdfs_block_request want = {
            .cluster = s->cluster,
            .block = &u->block,
            .token = u->token,
            .node = u->node,
            .from = at,
            .to = u->block.numbytes,
            .timeout_ms = s->timeout_ms,
        };

        got = hy_hdfs_block_reader_open(&u->reader, &want, err);
    }
    if (got == 0)
        got = hy_hdfs_block_reader_read(u->reader, into, n, err);
    if (got == (int64_t)n)
        return 0;
    hy_hdfs_block_reader_close(hy_take(u->reader));
    u->is_bad = got != -EINTR;
    return got < 0 ? (int)got : hy_err_set(err, -EIO, "a unit of its block group is too short");
}

/* The same, with zeros past the end of the unit. */
static int read_padded(struct hy_hdfs_striped_reader *s, struct unit *u, uint8_t *into, size_t n, uint64_t at,
                       struct hy_err *err)
{
    const uint64_t length = u->block.numbytes;
    const size_t there = at >= length ? 0 : length - at < n ? (size_t)(length - at) : n;

    memset(into + there, 0, n - there);
    return there ? read_unit(s, u, into, there, at, err) : u->node && !u->is_bad ? 0 : -ENODATA;
}

/* Reconstructs a range of the unit `lost` from the others. */
static int recover(struct hy_hdfs_striped_reader *s, unsigned lost, uint8_t *into, size_t n, uint64_t at,
                   struct hy_err *err)
{
    const unsigned all = s->code.data + s->code.parity;
    const uint8_t *units[HY_HDFS_EC_UNITS_MAX] = {0};
    hy_cleanup_free uint8_t *buffer = hy_reallocarray(NULL, s->code.data, n);
    unsigned count = 0;
    int rc;

    if (!buffer)
        return hy_err_oom(err);
    for (unsigned i = 0; i < all && count < s->code.data; i++) {
        uint8_t *mine = buffer + count * n;

        if (i == lost)
            continue;
        rc = read_padded(s, &s->units[i], mine, n, at, err);
        if (rc == -EINTR || rc == -ENOMEM)
            return rc;
        if (rc == 0) {
            units[i] = mine;
            count++;
        }
    }
    rc = hy_hdfs_ec_recover(&s->code, units, lost, into, n);
    return rc < 0 ? hy_err_set(err, rc, "only %u of the %u required units of a block group can be read", count,
                               s->code.data)
                  : 0;
}

int64_t hy_hdfs_striped_reader_read(struct hy_hdfs_striped_reader *s, const Hdfs__LocatedBlock *group, void *into,
                                    size_t n, uint64_t at, struct hy_err *err)
{
    const uint64_t number = at / s->cell;
    const unsigned unit = (unsigned)(number % s->code.data);
    const uint64_t in_unit = number / s->code.data * s->cell + at % s->cell;
    int rc;

    set_group(s, group);
    if (n > s->cell - at % s->cell)
        n = (size_t)(s->cell - at % s->cell);
    if (n > group->b->numbytes - at)
        n = (size_t)(group->b->numbytes - at);
    rc = read_unit(s, &s->units[unit], into, n, in_unit, err);
    if (rc < 0 && rc != -EINTR && rc != -ENOMEM)
        rc = recover(s, unit, into, n, in_unit, err);
    return rc < 0 ? rc : (int64_t)n;
}
