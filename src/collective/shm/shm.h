/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of one agent, through shared memory: a memfd that all of them map.
 *
 * It is sparse: a head (who sleeps; byte pipes between each rank and the first
 * one of the host) and a region for each process set, whose pages come to be
 * when they are touched. All of it is zero at first, and a set's region again
 * after hy_shm_set_close by all.
 *
 * Calls block, are made by one thread of each rank, and in the same order by
 * all members of a set. They return 0, or -Exxx when the waiter has failed;
 * what is in the output is then undefined and the set of no use any more.
 */
#ifndef HY_COLLECTIVE_SHM_H
#define HY_COLLECTIVE_SHM_H

#include "collective/numbers/types.h"
#include "collective/shm/wait.h"

struct hy_shm;
struct hy_shm_set;

/* The size of the memfd for `local_count` ranks. It is sparse: pages that are not used take no memory. */
size_t hy_shm_size(unsigned local_count);
/*
 * Gives an empty memfd (MFD_ALLOW_SEALING) that size and seals it, so that no process can shrink it and make others
 * fault. Every rank calls it: whoever creates the memfd need not know how ranks use it.
 */
int hy_shm_reserve(int fd, unsigned local_count, struct hy_err *err);

/* Maps `fd` (which stays the caller's). `bells`: the names of all local ranks' bells, by local index; copied. */
int hy_shm_open(int fd, unsigned local, unsigned local_count, const char *const *bells, struct hy_waiter *waiter,
                struct hy_shm **ret, struct hy_err *err);
void hy_shm_close(struct hy_shm *s);

/* To be called before (true) and after (false) a sleep of the caller's own in hy_waiter_sleep: whoever
 * then has something for us rings. Look again after (true) and before sleeping. */
void hy_shm_set_sleeping(struct hy_shm *s, bool asleep);

/* Byte pipes between local rank 0 and each other one (`peer` is local; one of the two is 0). Never block:
 * how many bytes were taken or are there. */
size_t hy_shm_pipe_write(struct hy_shm *s, unsigned peer, const void *bytes, size_t n);
size_t hy_shm_pipe_read(struct hy_shm *s, unsigned peer, void *bytes, size_t n);

/* `members`: local indices, ascending, we among them. `slot` < HY_SETS_MAX: the region. */
int hy_shm_set_open(struct hy_shm *s, unsigned slot, const unsigned *members, unsigned count, struct hy_shm_set **ret);
void hy_shm_set_close(struct hy_shm_set *set);

/* out = post * (pre * in of member 0  op  pre * in of member 1 ...); in == out is fine. Not for HY_ADASUM.
 * HY_AVERAGE is HY_SUM here: the caller's `post` says the rest. */
int hy_shm_allreduce(struct hy_shm_set *set, const void *in, void *out, size_t count, enum hy_type type,
                     enum hy_reduce op, double pre, double post);

/* The same of several arrays at once, as if each list lay in one piece. No `out` overlaps another span. */
struct hy_span {
    const void *in;
    void *out;
    size_t count; /* elements */
};
int hy_shm_allreduce_spans(struct hy_shm_set *set, const struct hy_span *spans, size_t span_count, enum hy_type type,
                           enum hy_reduce op, double pre, double post);

/* The same in two halves, for what happens between hosts in between. The elements are cut into `lanes` slices
 * (hy_slice below); after the first, member j < lanes holds the host's result of slice j in `out` (the rest of
 * `out` is undefined); the second gives every member all slices, times `post`. */
int hy_shm_reduce_slices(struct hy_shm_set *set, const void *in, void *out, size_t count, enum hy_type type,
                         enum hy_reduce op, double pre, unsigned lanes);
int hy_shm_share_slices(struct hy_shm_set *set, void *out, size_t count, enum hy_type type, double post, unsigned lanes);

int hy_shm_barrier(struct hy_shm_set *set);
/* `root`: index in the set. */
int hy_shm_broadcast(struct hy_shm_set *set, void *bytes, size_t n, unsigned root);
/* bytes of member i: sizes[i], at offsets[i] in everybody's `out`; in may lie in its place there already. */
int hy_shm_allgather(struct hy_shm_set *set, const void *in, void *out, const size_t *sizes, const size_t *offsets);
/* matrix[i * count + j]: bytes from member i to j. Ours lie in `in` one behind the other, as do those received. */
int hy_shm_alltoall(struct hy_shm_set *set, const void *in, void *out, const size_t *matrix);
/* Member i gets counts[i] elements of the reduction, which lie one behind the other in everybody's `in`. */
int hy_shm_reducescatter(struct hy_shm_set *set, const void *in, void *out, const size_t *counts, enum hy_type type,
                         enum hy_reduce op, double pre, double post);

/* Slice `index` of `parts` of `count` elements: begins at *ret_begin, returns its length. Slices begin at multiples
 * of 64 elements, so that no two share a cache line; the last ones may be empty. */
static inline size_t hy_slice(size_t count, unsigned parts, unsigned index, size_t *ret_begin)
{
    size_t each = ((count + parts - 1) / parts + 63) & ~(size_t)63;
    size_t begin = each * index < count ? each * index : count;

    *ret_begin = begin;
    return count - begin < each ? count - begin : each;
}

#endif
