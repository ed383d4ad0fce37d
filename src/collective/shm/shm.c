/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of the memory, byte pipes, and the regions of sets.
 *
 *   head      sleeping ranks, counters of the pipes
 *   pipes     2 * local_count rings of PIPE_BYTES
 *   regions   HY_SETS_MAX, each large enough for any set of local_count ranks
 */
#include "collective/shm/shm_set.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/mem.h"

#define PAGE 4096ul
#define PIPE_BYTES (64ul << 10) /* a power of two */
#define SLOT_GAP 320u           /* so that the slots of a ring do not map to the same cache sets */
#define CLOSING_MS 10           /* between two checks whether the members of an old set have closed it */

static size_t pages(size_t n)
{
    return (n + PAGE - 1) & ~(PAGE - 1);
}

static size_t head_bytes(void)
{
    return pages(sizeof(struct hy_shm_head));
}

static size_t pipes_bytes(unsigned local_count)
{
    return 2ul * local_count * PIPE_BYTES;
}

/* Slots get smaller with many members, which bounds the memory of a set. */
static size_t slot_bytes(unsigned count)
{
    size_t fair = HY_REGION_MAX / hy_ring(count) / count & ~(PAGE - 1);

    return hy_smaller(fair, HY_SLOT_MAX);
}

static size_t region_bytes(unsigned count)
{
    size_t words = pages(sizeof(struct hy_region) + count * sizeof(struct hy_counters));

    return words + pages(count * hy_ring(count) * (slot_bytes(count) + SLOT_GAP));
}

/* A smaller set may need more memory than the largest, since its rings are longer. */
static size_t region_stride(unsigned local_count)
{
    size_t most = 0;

    for (unsigned count = 1; count <= local_count; count++)
        most = region_bytes(count) > most ? region_bytes(count) : most;
    return most;
}

size_t hy_shm_size(unsigned local_count)
{
    return head_bytes() + pipes_bytes(local_count) + HY_SETS_MAX * region_stride(local_count);
}

/* All local ranks do this at the same time, with the same size: truncating to the current size succeeds on a sealed
 * memfd, and only the first rank can add the seals. */
int hy_shm_reserve(int fd, unsigned local_count, struct hy_err *err)
{
    int seals;

    if (HY_SYS(ftruncate(fd, (off_t)hy_shm_size(local_count))) < 0)
        return hy_err_sys(err, -errno, "cannot reserve the memory that %u ranks share", local_count);
    (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    seals = HY_SYS(fcntl(fd, F_GET_SEALS));
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return hy_err_sys(err, seals < 0 ? -errno : -EPERM, "cannot seal the memory that %u ranks share", local_count);
    return 0;
}

/* ---- open and close ----------------------------------------------------------------- */

static bool is_crowded(unsigned local_count)
{
    cpu_set_t processors;

    return sched_getaffinity(0, sizeof processors, &processors) == 0 && local_count > (unsigned)CPU_COUNT(&processors);
}

static int map_head(struct hy_shm *s, int fd, struct hy_err *err)
{
    off_t size = lseek(fd, 0, SEEK_END);

    if (size < 0 || (size_t)size < hy_shm_size(s->local_count))
        return hy_err_set(err, -EINVAL, "the memory shared by %u ranks has %lld bytes instead of %zu", s->local_count,
                          (long long)size, hy_shm_size(s->local_count));
    s->fd = HY_SYS(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (s->fd < 0)
        return hy_err_sys(err, -errno, "cannot duplicate the descriptor of the memory shared with other ranks");
    s->head = hy_shm_map(s->fd, 0, head_bytes() + pipes_bytes(s->local_count));
    if (!s->head)
        return hy_err_sys(err, -errno, "cannot map the memory shared with other ranks");
    s->pipe_bytes = (uint8_t *)s->head + head_bytes();
    return 0;
}

int hy_shm_open(int fd, unsigned local, unsigned local_count, const char *const *bells, struct hy_waiter *waiter,
                struct hy_shm **ret, struct hy_err *err)
{
    struct hy_shm *s;
    int rc;

    if (!local_count || local_count > HY_LOCAL_MAX_RANKS || local >= local_count)
        return hy_err_set(err, -EINVAL, "%u ranks share memory, and at most %u can", local_count, HY_LOCAL_MAX_RANKS);
    s = hy_calloc(1, sizeof *s);
    if (!s)
        return hy_err_oom(err);
    s->fd = -1;
    s->local = local;
    s->local_count = local_count;
    s->waiter = waiter;
    s->patience = hy_patience(is_crowded(local_count));
    for (unsigned i = 0; i < local_count; i++)
        memcpy(s->bells[i], bells[i], strnlen(bells[i], HY_BELL_MAX - 1));
    rc = map_head(s, fd, err);
    if (rc < 0) {
        hy_shm_close(s);
        return rc;
    }
    *ret = s;
    return 0;
}

void hy_shm_close(struct hy_shm *s)
{
    if (!s)
        return;
    if (s->head)
        hy_shm_unmap(s->head, head_bytes() + pipes_bytes(s->local_count));
    hy_close_at(&s->fd);
    free(s);
}

/* ---- sleeping ranks --------------------------------------------------------------------- */

/*
 * A rank that makes progress stores it and then checks for sleepers; a rank that is about to sleep stores that and
 * then checks for progress. Both are sequentially consistent, so at least one of the two sees the other.
 */
void hy_shm_set_sleeping(struct hy_shm *s, bool asleep)
{
    if (asleep == s->counted)
        return;
    s->counted = asleep;
    atomic_store(&s->head->ranks[s->local].asleep, asleep);
    if (asleep)
        atomic_fetch_add(&s->head->sleepers, 1);
    else
        atomic_fetch_sub(&s->head->sleepers, 1);
}

/* Once for each sleep: a rank that another has woken need not be woken again. */
static void wake(struct hy_shm *s, unsigned local)
{
    _Atomic uint32_t *asleep = &s->head->ranks[local].asleep;

    if (local != s->local && atomic_load(asleep) && atomic_exchange(asleep, 0))
        hy_bell_ring(s->waiter->bell, s->bells[local]);
}

void hy_set_wake(struct hy_shm_set *set)
{
    if (atomic_load(&set->shm->head->sleepers))
        for (unsigned i = 0; i < set->count; i++)
            wake(set->shm, set->members[i]);
}

/* ---- pipes -------------------------------------------------------------------------- */

/* The pipe between the first rank and another one, in one direction, and its buffer. */
static struct hy_shm_pipe *find_pipe(struct hy_shm *s, unsigned peer, bool writing, uint64_t **ret_moved,
                                     uint8_t **ret_bytes)
{
    unsigned other = s->local ? s->local : peer;
    unsigned to_first = writing == (s->local != 0);

    *ret_moved = &s->moved[other][to_first];
    *ret_bytes = s->pipe_bytes + (other * 2ul + to_first) * PIPE_BYTES;
    return &s->head->pipes[other][to_first];
}

size_t hy_shm_pipe_write(struct hy_shm *s, unsigned peer, const void *bytes, size_t n)
{
    uint64_t *moved;
    uint8_t *ring;
    struct hy_shm_pipe *pipe = find_pipe(s, peer, true, &moved, &ring);
    uint64_t unread = *moved - atomic_load_explicit(&pipe->read, memory_order_acquire);
    size_t at = *moved % PIPE_BYTES, first;

    if (unread > PIPE_BYTES) /* an invalid counter: nothing can be written any more */
        return 0;
    n = hy_smaller(n, PIPE_BYTES - unread);
    first = hy_smaller(n, PIPE_BYTES - at);
    memcpy(ring + at, bytes, first);
    memcpy(ring, (const uint8_t *)bytes + first, n - first);
    *moved += n;
    atomic_store(&pipe->written, *moved);
    if (n && atomic_load(&s->head->sleepers))
        wake(s, peer);
    return n;
}

size_t hy_shm_pipe_read(struct hy_shm *s, unsigned peer, void *bytes, size_t n)
{
    uint64_t *moved;
    uint8_t *ring;
    struct hy_shm_pipe *pipe = find_pipe(s, peer, false, &moved, &ring);
    uint64_t there = atomic_load(&pipe->written) - *moved;
    size_t at = *moved % PIPE_BYTES, first;

    if (there > PIPE_BYTES) /* an invalid counter: nothing can be read any more */
        return 0;
    n = hy_smaller(n, there);
    first = hy_smaller(n, PIPE_BYTES - at);
    memcpy(bytes, ring + at, first);
    memcpy((uint8_t *)bytes + first, ring, n - first);
    *moved += n;
    if (n)
        atomic_store(&pipe->read, *moved);
    if (n && atomic_load(&s->head->sleepers)) /* the writer may wait for room */
        wake(s, peer);
    return n;
}

/* ---- sets --------------------------------------------------------------------------- */

static uint64_t region_offset(const struct hy_shm_set *set)
{
    const struct hy_shm *s = set->shm;

    return head_bytes() + pipes_bytes(s->local_count) + (uint64_t)set->slot * region_stride(s->local_count);
}

/* A set that this rank closed in this slot before is cleared when its last member has closed it. */
static int await_cleared(struct hy_shm_set *set)
{
    int rc = 0;

    while (rc == 0 && atomic_load(&set->region->gone[set->shm->local]))
        rc = hy_waiter_sleep(set->shm->waiter, NULL, 0, CLOSING_MS);
    return rc;
}

/* Ascending, including this rank. */
static bool take_members(struct hy_shm_set *set, const unsigned *members, unsigned count)
{
    bool found = false;

    for (unsigned i = 0; i < count; i++) {
        if (members[i] >= set->shm->local_count || (i && members[i] <= members[i - 1]))
            return false;
        set->members[i] = members[i];
        if (members[i] == set->shm->local) {
            set->index = i;
            found = true;
        }
    }
    set->count = count;
    return found;
}

/* Processors of one machine may have caches of different sizes: what the first member finds holds for all. */
static void choose_by_caches(struct hy_shm_set *set)
{
    uint32_t kind = 0, own = hy_ring_kind(set->count, sysconf(_SC_LEVEL2_CACHE_SIZE));

    if (atomic_compare_exchange_strong(&set->region->ring_kind, &kind, own))
        kind = own;
    set->stream_from = hy_stream_from(set->count, sysconf(_SC_LEVEL3_CACHE_SIZE));
    set->swaps = kind == HY_RING_SWAPPED && set->count == 2;
    set->ring = hy_ring_slots(set->count, set->swaps ? HY_RING_SWAPPED : HY_RING_LONG);
}

static int prepare_set(struct hy_shm_set *set, const unsigned *members, unsigned count)
{
    int rc;

    if (!take_members(set, members, count))
        return -EINVAL;
    set->slot_bytes = slot_bytes(count);
    set->slot_stride = set->slot_bytes + SLOT_GAP;
    set->scratch = hy_fault_hit(HY_SEAM_ALLOC) ? NULL : aligned_alloc(HY_LINE, 2 * HY_BLOCK);
    if (!set->scratch)
        return -ENOMEM;
    set->scaled = set->scratch + HY_BLOCK;
    set->region_bytes = region_bytes(count);
    set->region = hy_shm_map(set->shm->fd, region_offset(set), set->region_bytes);
    rc = set->region ? await_cleared(set) : -errno;
    if (rc == 0)
        choose_by_caches(set);
    return rc;
}

static void free_set(struct hy_shm_set *set)
{
    if (set->region)
        hy_shm_unmap(set->region, set->region_bytes);
    free(set->scratch);
    free(set);
}

int hy_shm_set_open(struct hy_shm *s, unsigned slot, const unsigned *members, unsigned count, struct hy_shm_set **ret)
{
    struct hy_shm_set *set;
    int rc;

    if (slot >= HY_SETS_MAX || !count || count > s->local_count)
        return -EINVAL;
    set = hy_calloc(1, sizeof *set);
    if (!set)
        return -ENOMEM;
    set->shm = s;
    set->slot = slot;
    rc = prepare_set(set, members, count);
    if (rc < 0) {
        free_set(set);
        return rc;
    }
    *ret = set;
    return 0;
}

/* Frees the pages of the slots, then resets all counters. Pages that cannot be freed only waste memory. */
static void clear_region(struct hy_shm_set *set)
{
    struct hy_region *region = set->region;
    size_t slots = (size_t)(hy_set_slots(set) - (uint8_t *)region);

    (void)HY_SYS(fallocate(set->shm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                           (off_t)(region_offset(set) + slots), (off_t)(set->region_bytes - slots)));
    for (unsigned i = 0; i < set->count; i++)
        for (int word = 0; word < HY_COUNTERS; word++)
            atomic_store(&region->members[i].at[word], 0);
    atomic_store(&region->closed, 0);
    atomic_store(&region->ring_kind, 0);
    for (unsigned i = 0; i < set->count; i++) /* last, since await_cleared waits for it */
        atomic_store(&region->gone[set->members[i]], 0);
}

void hy_shm_set_close(struct hy_shm_set *set)
{
    if (!set)
        return;
    atomic_store(&set->region->gone[set->shm->local], 1);
    if (atomic_fetch_add(&set->region->closed, 1) + 1 == set->count) /* the last member */
        clear_region(set);
    free_set(set);
}
