/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose results are checked, for the suites of the mesh. */
#ifndef HY_TESTS_MESH_CHECKS_H
#define HY_TESTS_MESH_CHECKS_H

#include "mesh_world.h"
#include "numbers.h"

static inline int wrong(struct rank *r, const char *what, size_t size, int detail)
{
    return hy_err_set(&r->waiter.failed, -EBADMSG, "wrong result of %s, size %zu, %d", what, size, detail);
}

/* Numbers that repeat from `period` elements on. */
static inline void repeat(void *out, size_t period, size_t count, enum hy_type type)
{
    size_t size = hy_type_size(type);

    for (size_t have = period; have < count; have *= 2) /* what is there makes up twice as much */
        memcpy((char *)out + have * size, out, (count - have < have ? count - have : have) * size);
}

static inline void fill_small(void *out, unsigned rank, size_t count, enum hy_type type)
{
    for (size_t i = 0; i < 2 && i < count; i++)
        number_put_small(type, out, i, 1 + (int)((i + rank * rank) % 2));
    repeat(out, 2, count, type);
}

/* What the reduction over `members` should give. */
static inline void expect_small(void *out, const unsigned *members, unsigned member_count, size_t count,
                                enum hy_type type, enum hy_reduce op)
{
    uint64_t each[WORLD_MAX];
    const void *sources[WORLD_MAX];

    for (unsigned m = 0; m < member_count; m++)
        sources[m] = &each[m];
    for (size_t i = 0; i < 2 && i < count; i++) {
        for (unsigned m = 0; m < member_count; m++)
            number_put_small(type, &each[m], 0, 1 + (int)((i + members[m] * members[m]) % 2));
        number_reduce((char *)out + i * hy_type_size(type), sources, member_count, 1, type, op);
    }
    repeat(out, 2, count, type);
}

static inline int check_allreduce(struct rank *r, const unsigned *members, unsigned count, size_t n, enum hy_type type,
                                  enum hy_reduce op)
{
    hy_cleanup_free uint8_t *buf = malloc(n * 8 + 8), *expected = malloc(n * 8 + 8);
    size_t bytes = n * hy_type_size(type);
    int rc;

    fill_small(buf, r->rank, n, type);
    buf[bytes] = 99; /* nothing behind it may be touched */
    expect_small(expected, members, count, n, type, op);
    rc = hy_mesh_allreduce(r->mesh, members, count, buf, n, type, op);
    if (rc < 0)
        return rc;
    return memcmp(buf, expected, bytes) == 0 && buf[bytes] == 99 ? 0 : wrong(r, "allreduce", n, type * 100 + op);
}

static inline uint8_t byte_of(unsigned from, unsigned to, size_t i)
{
    return (uint8_t)(from * 31 + to * 7 + i + i / 251);
}

static inline void fill_bytes(uint8_t *out, size_t n, unsigned from, unsigned to)
{
    for (size_t i = 0; i < n; i++)
        out[i] = byte_of(from, to, i);
}

static inline bool are_bytes(const uint8_t *bytes, size_t n, unsigned from, unsigned to)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != byte_of(from, to, i))
            return false;
    return true;
}

static inline int check_allgather(struct rank *r, size_t base)
{
    struct world *w = r->world;
    size_t lengths[WORLD_MAX], offsets[WORLD_MAX], total = 0;
    hy_cleanup_free uint8_t *out = NULL;
    int rc;

    for (unsigned i = 0; i < w->size; i++) {
        lengths[i] = i == 2 ? 0 : base * (i + 1);
        offsets[i] = total;
        total += lengths[i] + 3; /* with gaps between */
    }
    out = calloc(1, total + 1);
    fill_bytes(out + offsets[r->rank], lengths[r->rank], r->rank, 0);
    rc = hy_mesh_allgather(r->mesh, w->peers, w->size, out, lengths, offsets);
    if (rc < 0)
        return rc;
    for (unsigned i = 0; i < w->size; i++)
        if (!are_bytes(out + offsets[i], lengths[i], i, 0) || out[offsets[i] + lengths[i]])
            return wrong(r, "allgather", base, (int)i);
    return 0;
}

#endif
