/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/usage.h"

#include <errno.h>
#include <string.h>

#include "base/mem.h"
#include "wire/proto_memory.h"

#define INTERVAL_MAX_MS (INT64_C(1) << 40)

#define VALUE_MAX (INT64_C(1) << 43) /* KB, in bytes the largest exact integer in JavaScript */

/* The columns of a point, in the order of the message's lists. */
static const size_t columns[] = {
    offsetof(struct hy_usage_point, time_ms), offsetof(struct hy_usage_point, memory),
    offsetof(struct hy_usage_point, cpu_ms),  offsetof(struct hy_usage_point, gpu_memory),
    offsetof(struct hy_usage_point, gpu_use),
};
#define PLAIN_COLUMNS 3 /* the rest are of GPUs */

static int64_t *cell(struct hy_usage_point *p, size_t column)
{
    return (int64_t *)((char *)p + columns[column]);
}

/* ---- points ------------------------------------------------------------------------------------ */

void hy_usage_init(struct hy_usage *u)
{
    *u = (struct hy_usage){.interval_ms = HY_USAGE_INTERVAL_MS};
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The one with more memory, so that the peak is never lost. */
static struct hy_usage_point merge(const struct hy_usage_point *a, const struct hy_usage_point *b)
{
    struct hy_usage_point kept = a->memory > b->memory ? *a : *b;

    kept.gpu_memory = larger(a->gpu_memory, b->gpu_memory);
    kept.gpu_use = (a->gpu_use + b->gpu_use) / 2;
    return kept;
}

/* The first and the last point stay as they are. */
static void thin(struct hy_usage *u)
{
    size_t kept = 1, i = 1;

    for (; i + 2 < u->count; i += 2)
        u->points[kept++] = merge(&u->points[i], &u->points[i + 1]);
    for (; i < u->count; i++)
        u->points[kept++] = u->points[i];
    u->count = kept;
    if (u->interval_ms < INTERVAL_MAX_MS) /* points that are more frequent than the interval cause repeated thinning */
        u->interval_ms *= 2;
}

void hy_usage_add(struct hy_usage *u, const struct hy_usage_point *p)
{
    struct hy_usage_point *last = u->count ? &u->points[u->count - 1] : NULL;
    struct hy_usage_point added = *p;

    u->has_gpus |= p->gpu_memory || p->gpu_use;
    if (last)
        added.cpu_ms = larger(added.cpu_ms, last->cpu_ms);
    if (last && added.time_ms <= last->time_ms) {
        added.time_ms = last->time_ms;
        *last = added;
        return;
    }
    if (u->count == HY_USAGE_POINTS)
        thin(u);
    u->points[u->count++] = added;
}

/* ---- messages ---------------------------------------------------------------------------------- */

void hy_usage_fill(const struct hy_usage *u, struct hy_usage_message *ret)
{
    Hy__Usage *m = &ret->message;
    struct hy_usage_point last = {0};

    hy__usage__init(m);
    for (size_t i = 0; i < u->count; i++) {
        struct hy_usage_point p = u->points[i];

        for (size_t c = 0; c < HY_COUNT(columns); c++)
            ret->room[c][i] = *cell(&p, c) - *cell(&last, c);
        last = p;
    }
    m->n_time_ms = m->n_memory = m->n_cpu_ms = u->count;
    m->n_gpu_memory = m->n_gpu_use = u->has_gpus ? u->count : 0;
    m->time_ms = ret->room[0];
    m->memory = ret->room[1];
    m->cpu_ms = ret->room[2];
    m->gpu_memory = ret->room[3];
    m->gpu_use = ret->room[4];
}

int hy_usage_pack(const struct hy_usage *u, struct hy_buf *out)
{
    hy_cleanup_free struct hy_usage_message *m = hy_malloc(sizeof *m);
    size_t n;
    uint8_t *room;

    if (!m)
        return -ENOMEM;
    hy_usage_fill(u, m);
    n = hy__usage__get_packed_size(&m->message);
    room = hy_buf_reserve(out, n + 1); /* an empty message has no bytes */
    if (!room)
        return -ENOMEM;
    hy_buf_added(out, hy__usage__pack(&m->message, room));
    return 0;
}

/* Adds up one list. */
static int read_column(struct hy_usage *u, size_t column, const int64_t *list)
{
    int64_t sum = 0;

    for (size_t i = 0; i < u->count; i++) {
        if (__builtin_add_overflow(sum, list[i], &sum) || sum < 0 || sum > VALUE_MAX)
            return -EBADMSG;
        *cell(&u->points[i], column) = sum;
    }
    return 0;
}

static bool is_ordered(const struct hy_usage *u)
{
    for (size_t i = 1; i < u->count; i++)
        if (u->points[i].time_ms <= u->points[i - 1].time_ms || u->points[i].cpu_ms < u->points[i - 1].cpu_ms)
            return false;
    return true;
}

int hy_usage_read(const Hy__Usage *m, struct hy_usage *ret)
{
    const int64_t *lists[] = {m->time_ms, m->memory, m->cpu_ms, m->gpu_memory, m->gpu_use};
    const size_t counts[] = {m->n_time_ms, m->n_memory, m->n_cpu_ms, m->n_gpu_memory, m->n_gpu_use};
    int rc = 0;

    hy_usage_init(ret);
    if (counts[0] > HY_USAGE_POINTS)
        return -EBADMSG;
    ret->count = counts[0];
    ret->has_gpus = counts[PLAIN_COLUMNS] > 0;
    for (size_t c = 0; c < HY_COUNT(columns) && rc == 0; c++) {
        if (c >= PLAIN_COLUMNS && !ret->has_gpus && counts[c] == 0)
            continue;
        rc = counts[c] == ret->count ? read_column(ret, c, lists[c]) : -EBADMSG;
    }
    return rc == 0 && !is_ordered(ret) ? -EBADMSG : rc;
}

int hy_usage_unpack(const void *bytes, size_t n, struct hy_usage *ret)
{
    Hy__Usage *m = n <= HY_USAGE_PACKED_MAX ? hy__usage__unpack(&hy_proto_memory, n, bytes) : NULL;
    int rc = m ? hy_usage_read(m, ret) : -EBADMSG;

    hy__usage__free_unpacked(m, &hy_proto_memory);
    return rc;
}
