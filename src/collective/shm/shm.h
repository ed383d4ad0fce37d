/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives among the ranks of one agent, through shared memory: a memfd that all of them map.
 *
 * The memory is sparse: a head (sleeping ranks, byte pipes between the first local rank and each other one) and a
 * region for each process set. It is zero at first; a set's region is zero again when all members have closed the set.
 *
 * Calls block, come from one thread of each rank, and in the same order on all members of a set. They return 0, or
 * -Exxx when the waiter has failed; then the output is undefined and the set can only be closed.
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
 * fault. Every rank calls it, so that the creator of the memfd need not know the layout.
 */
int hy_shm_reserve(int fd, unsigned local_count, struct hy_err *err);

/* Maps `fd`, which remains the caller's. `bells`: the names of all local ranks' bells, by local index; copied. */
int hy_shm_open(int fd, unsigned local, unsigned local_count, const char *const *bells, struct hy_waiter *waiter,
                struct hy_shm **ret, struct hy_err *err);
void hy_shm_close(struct hy_shm *s);

/* Call with true before hy_waiter_sleep and with false after it: in between, ranks that make progress ring this rank's
 * bell. Check the condition once more between the call and the sleep, or a wakeup is lost. */
void hy_shm_set_sleeping(struct hy_shm *s, bool asleep);

/* Byte pipes between local rank 0 and each other one (`peer` is a local rank; one of the two is 0). Never block;
 * return how many bytes were written or read. */
size_t hy_shm_pipe_write(struct hy_shm *s, unsigned peer, const void *bytes, size_t n);
size_t hy_shm_pipe_read(struct hy_shm *s, unsigned peer, void *bytes, size_t n);

/* `members`: local indices, ascending, including this rank. `slot` < HY_SETS_MAX: the region. */
int hy_shm_set_open(struct hy_shm *s, unsigned slot, const unsigned *members, unsigned count, struct hy_shm_set **ret);
void hy_shm_set_close(struct hy_shm_set *set);

/* out = post * (pre * in of member 0  op  pre * in of member 1 ...); in == out is fine. Not for HY_ADASUM.
 * HY_AVERAGE is HY_SUM here: the caller passes the division in `post`. */
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

/* The same in two halves, for a reduction between hosts in between. The elements are divided into `lanes` slices
 * (hy_slice below). After the first half, member j < lanes holds the host's result of slice j in `out`, and the rest
 * of `out` is undefined. The second half gives all slices, times `post`, to every member. */
int hy_shm_reduce_slices(struct hy_shm_set *set, const void *in, void *out, size_t count, enum hy_type type,
                         enum hy_reduce op, double pre, unsigned lanes);
int hy_shm_share_slices(struct hy_shm_set *set, void *out, size_t count, enum hy_type type, double post,
                        unsigned lanes);

int hy_shm_barrier(struct hy_shm_set *set);
/* `root`: index in the set. */
int hy_shm_broadcast(struct hy_shm_set *set, void *bytes, size_t n, unsigned root);
/* Member i contributes sizes[i] bytes, at offsets[i] in every `out`; `in` may already be at its offset in `out`. */
int hy_shm_allgather(struct hy_shm_set *set, const void *in, void *out, const size_t *sizes, const size_t *offsets);
/* matrix[i * count + j]: bytes from member i to j. Contiguous in `in`, by receiver, and in `out`, by sender. */
int hy_shm_alltoall(struct hy_shm_set *set, const void *in, void *out, const size_t *matrix);
/* Member i gets counts[i] elements of the reduction; the parts are contiguous in `in`. */
int hy_shm_reducescatter(struct hy_shm_set *set, const void *in, void *out, const size_t *counts, enum hy_type type,
                         enum hy_reduce op, double pre, double post);

/* Slice `index` of `parts` of `count` elements: its start in *ret_begin; returns its length. Slices start at multiples
 * of 64 elements, so that no two share a cache line; the last ones may be empty. */
static inline size_t hy_slice(size_t count, unsigned parts, unsigned index, size_t *ret_begin)
{
    size_t each = ((count + parts - 1) / parts + 63) & ~(size_t)63;
    size_t begin = each * index < count ? each * index : count;

    *ret_begin = begin;
    return count - begin < each ? count - begin : each;
}

#endif
