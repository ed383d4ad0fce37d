/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Internals of shm: a process set's region, and how all of its operations run.
 *
 * Each member has a ring of slots, which it alone writes and all others read, and three counters. An operation is a
 * sequence of steps, numbered from the opening of the set; every member makes the same steps in the same order, and
 * step t uses slot t % ring of every member:
 *
 *   posted > t    the member's share of step t is in its slot
 *   joined > t    ... and so is its slice of the reduction of all shares (allreduce by slices)
 *   done   > t    the member has read the other slots of step t: they may be overwritten
 *
 * With two members the slots of a member in one round are those of the other in the next: each writes where it has just
 * read, into lines that its own cache holds. Every line that moves between cores then carries data; otherwise every
 * second transfer would only return a line to be overwritten.
 *
 * An operation defines only what a member writes to its slot in each step and how it uses the others' slots; waiting,
 * order and flow control are in hy_set_run().
 */
#ifndef HY_COLLECTIVE_SHM_SET_H
#define HY_COLLECTIVE_SHM_SET_H

#include <stdatomic.h>
#include <string.h>

#include "collective/shm/choice.h"
#include "collective/shm/shm.h"

#define HY_SLOT_MAX (64u << 10)   /* maximum bytes of a slot */
#define HY_REGION_MAX (32u << 20) /* approximate bytes of all slots of a set */
#define HY_LINE 128               /* two cache lines, since processors prefetch them in pairs */
#define HY_BLOCK (4u << 10)       /* bytes processed at a time, so that they stay in the L1 cache */

/* ---- in shared memory: written by others, never trusted ----------------------------- */

enum hy_counter { HY_POSTED, HY_JOINED, HY_DONE, HY_COUNTERS };

struct hy_counters {
    _Alignas(HY_LINE) _Atomic uint64_t at[HY_COUNTERS];
};

struct hy_region {
    _Alignas(HY_LINE) _Atomic uint32_t closed; /* how many members have closed the set */
    _Atomic uint32_t ring_kind;                /* enum hy_ring_kind: the choice of the first member; 0: none yet */
    _Atomic uint8_t gone[HY_LOCAL_MAX_RANKS];  /* which, by local rank */
    struct hy_counters members[];                 /* followed by the slots, from hy_set_slots() on */
};

struct hy_shm_sleeper {
    _Alignas(HY_LINE) _Atomic uint32_t asleep; /* 1: ring its bell after progress */
};

struct hy_shm_pipe {
    _Alignas(HY_LINE) _Atomic uint64_t written; /* by its writer */
    _Alignas(HY_LINE) _Atomic uint64_t read;    /* by its reader */
};

struct hy_shm_head {
    _Alignas(HY_LINE) _Atomic uint32_t sleepers; /* mostly 0, which saves checking each rank */
    struct hy_shm_sleeper ranks[HY_LOCAL_MAX_RANKS];
    struct hy_shm_pipe pipes[HY_LOCAL_MAX_RANKS][2]; /* from the first rank, to the first rank */
};

/* ---- private to the process ---------------------------------------------------------------- */

struct hy_shm {
    int fd;
    unsigned local, local_count;
    struct hy_waiter *waiter;
    struct hy_shm_head *head;
    uint8_t *pipe_bytes;
    uint64_t moved[HY_LOCAL_MAX_RANKS][2]; /* bytes by this rank, per pipe; the copy in shared memory is not trusted */
    bool counted; /* in head->sleepers */
    struct hy_patience patience;
    char bells[HY_LOCAL_MAX_RANKS][HY_BELL_MAX];
};

/* Whether the readers of this member's slots are on cores with another cache, as last measured. */
struct hy_pace {
    bool far;
    bool suspect; /* one probe was slow; a second one shows whether it was only interrupted */
    uint64_t next_probe; /* step */
};

struct hy_shm_set {
    struct hy_shm *shm;
    unsigned slot, count, index; /* of the region; number of members; index of this rank */
    unsigned members[HY_LOCAL_MAX_RANKS];
    struct hy_region *region;
    size_t region_bytes, slot_bytes, slot_stride;
    unsigned ring; /* slots of each member */
    bool swaps; /* two members: they change slots after each round */
    uint64_t step; /* the next one */
    uint64_t room; /* steps below this are done by all members, as of the last check */
    struct hy_pace pace;
    size_t stream_from; /* bytes: results above go past the caches */
    uint8_t *scratch, *scaled; /* HY_BLOCK bytes each, aligned to a line */
};

/* A mapping of a part of the memfd; NULL and errno. */
void *hy_shm_map(int fd, uint64_t offset, size_t size);
void hy_shm_unmap(void *memory, size_t size);

/* Wakes the sleeping members of the set. Call it after a seq_cst store of the value that they wait for. */
void hy_set_wake(struct hy_shm_set *set);
/* Whether that counter of a member is at least `value`. */
static inline bool hy_set_reached(const struct hy_shm_set *set, unsigned member, enum hy_counter word, uint64_t value)
{
    return atomic_load(&set->region->members[member].at[word]) >= value;
}
/* Waits until that counter of a member is at least `value`. 0 or -Exxx. */
int hy_set_wait(struct hy_shm_set *set, unsigned member, enum hy_counter word, uint64_t value);

/* ---- operations --------------------------------------------------------------------- */

struct hy_job;

struct hy_job_kind {
    /* `step` is relative to the start of the job. Slots: hy_job_slot(). */
    void (*post)(struct hy_job *job, size_t step);
    void (*join)(struct hy_job *job, size_t step); /* NULL: `take` needs only the posted shares */
    void (*take)(struct hy_job *job, size_t step);
};

struct hy_job {
    const struct hy_job_kind *kind;
    struct hy_shm_set *set;
    size_t steps;
    unsigned ahead; /* steps posted before one is taken, so that others do not wait for this member */
    size_t step_bytes; /* approximate bytes posted in the first step */
    bool one_posts; /* only the member `poster` posts */
    unsigned poster;
    uint64_t first; /* set by hy_set_run: the set's number of the first step */
    bool stream_slots; /* set by hy_set_run: post with non-temporal stores */
};

int hy_set_run(struct hy_shm_set *set, struct hy_job *job);

static inline uint8_t *hy_set_slots(const struct hy_shm_set *set)
{
    return (uint8_t *)set->region + ((sizeof *set->region + set->count * sizeof(struct hy_counters) + 4095) & ~4095ul);
}

/* The slot of a member in a step of the job. */
static inline uint8_t *hy_job_slot(const struct hy_job *job, unsigned member, size_t step)
{
    const struct hy_shm_set *set = job->set;
    uint64_t round = (job->first + step) / set->ring, turn = (job->first + step) % set->ring;

    if (set->swaps)
        member ^= round & 1;
    return hy_set_slots(set) + (member * set->ring + turn) * set->slot_stride;
}

static inline size_t hy_smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t hy_steps_for(size_t whole, size_t each)
{
    return whole / each + (whole % each != 0);
}

/* Allreduce by the given choice (for the benchmark, which tries all of them). */
int hy_shm_allreduce_by(struct hy_shm_set *set, const void *in, void *out, size_t count, enum hy_type type,
                        enum hy_reduce op, double pre, double post, const struct hy_choice *choice);

/* ---- copies (shm_copy.c) ------------------------------------------------------------ */

/* memcpy; with `stream`, by non-temporal stores. */
void hy_copy(void *to, const void *from, size_t n, bool stream);
/* The same; with `stream` it also prefetches n bytes at `next`, which are read after it. */
void hy_copy_fetching(void *to, const void *from, size_t n, bool stream, const void *next);
/* Non-temporal stores are unordered with other stores until this. */
void hy_copy_fence(void);
/* Whether a job should measure how long its first post takes; and the result. */
bool hy_pace_is_due(const struct hy_shm_set *set, const struct hy_job *job);
void hy_pace_record(struct hy_shm_set *set, const struct hy_job *job, int64_t ns);

#endif
