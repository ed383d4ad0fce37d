/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of shm: a process set's region and how all of its operations run.
 *
 * Each member has a ring of slots that it alone writes and all others read, and
 * three counters. Time in a set goes in steps, counted from its beginning; every
 * member makes the same ones, in an order that is the same for all, and step t
 * uses slot t % ring of everybody's:
 *
 *   posted > t    the member's share of step t is in its slot
 *   joined > t    ... and so is its slice of what comes of all shares (allreduce by slices)
 *   done   > t    the member has read what it wanted of others' slots: they may be written again
 *
 * Where two members swap, the slots of a member in one round are those of the
 * other in the next: it writes where it has read, into lines that its own cache
 * holds. Every line that goes from core to core then carries something, where
 * otherwise every second one only goes back to be written again.
 *
 * So an operation is what is put into a slot in each step and what is made of
 * the slots of others; waiting, order and room are all in hy_set_run().
 */
#ifndef HY_COLLECTIVE_SHM_SET_H
#define HY_COLLECTIVE_SHM_SET_H

#include <stdatomic.h>
#include <string.h>

#include "collective/shm/choice.h"
#include "collective/shm/shm.h"

#define HY_SLOT_MAX (64u << 10)   /* bytes of a slot, at most */
#define HY_REGION_MAX (32u << 20) /* bytes of all slots of a set, about */
#define HY_LINE 128               /* two cache lines: processors fetch them in pairs */
#define HY_BLOCK (4u << 10)       /* bytes worked on at a time: they stay in the nearest cache */

/* ---- in shared memory: written by others, never trusted ----------------------------- */

enum hy_counter { HY_POSTED, HY_JOINED, HY_DONE, HY_COUNTERS };

struct hy_counters {
    _Alignas(HY_LINE) _Atomic uint64_t at[HY_COUNTERS];
};

struct hy_region {
    _Alignas(HY_LINE) _Atomic uint32_t closed; /* by how many members */
    _Atomic uint32_t ring_kind;                /* enum hy_ring_kind: the choice of the first member; 0: none yet */
    _Atomic uint8_t gone[HY_LOCAL_MAX_RANKS];  /* by which, by local rank */
    struct hy_counters members[];                 /* then the slots, from hy_slots_begin() on */
};

struct hy_shm_sleeper {
    _Alignas(HY_LINE) _Atomic uint32_t asleep; /* 1: ring, whoever has something */
};

struct hy_shm_pipe {
    _Alignas(HY_LINE) _Atomic uint64_t written; /* by its writer */
    _Alignas(HY_LINE) _Atomic uint64_t read;    /* by its reader */
};

struct hy_shm_head {
    _Alignas(HY_LINE) _Atomic uint32_t sleepers; /* how many: mostly 0, and then nobody need be looked at */
    struct hy_shm_sleeper ranks[HY_LOCAL_MAX_RANKS];
    struct hy_shm_pipe pipes[HY_LOCAL_MAX_RANKS][2]; /* from the first rank, to the first rank */
};

/* ---- of this process ---------------------------------------------------------------- */

struct hy_shm {
    int fd;
    unsigned local, local_count;
    struct hy_waiter *waiter;
    struct hy_shm_head *head;
    uint8_t *pipe_bytes;
    uint64_t moved[HY_LOCAL_MAX_RANKS][2]; /* by us, of each pipe: not what shared memory says */
    bool counted;                          /* among the sleepers */
    struct hy_patience patience;
    char bells[HY_LOCAL_MAX_RANKS][HY_BELL_MAX];
};

/* Whether who reads our slots is far away, as it was found when last tried. */
struct hy_pace {
    bool far;
    bool suspect;        /* one probe was slow; a second one shows whether it was only interrupted */
    uint64_t next_probe; /* step */
};

struct hy_shm_set {
    struct hy_shm *shm;
    unsigned slot, count, index; /* of the region; of members; ours */
    unsigned members[HY_LOCAL_MAX_RANKS];
    struct hy_region *region;
    size_t region_bytes, slot_bytes, slot_stride;
    unsigned ring;               /* slots of each member */
    bool swaps;                  /* two members: they change slots after each round */
    uint64_t step;               /* the next one */
    uint64_t room;               /* steps below are done by all, as far as we have looked */
    struct hy_pace pace;
    size_t stream_from;          /* bytes: results above go past the caches */
    uint8_t *scratch, *scaled;   /* HY_BLOCK bytes each, aligned to a line */
};

/* A mapping of a part of the memfd; NULL and errno. */
void *hy_shm_map(int fd, uint64_t offset, size_t size);
void hy_shm_unmap(void *memory, size_t size);

/* Rings for those of the set who sleep. To be called after a seq_cst store of what they wait for. */
void hy_set_wake(struct hy_shm_set *set);
/* Whether that counter of a member is at least `value`. */
static inline bool hy_set_reached(const struct hy_shm_set *set, unsigned member, enum hy_counter word, uint64_t value)
{
    return atomic_load(&set->region->members[member].at[word]) >= value;
}
/* Until that counter of a member is at least `value`. 0 or -Exxx. */
int hy_set_wait(struct hy_shm_set *set, unsigned member, enum hy_counter word, uint64_t value);

/* ---- operations --------------------------------------------------------------------- */

struct hy_job;

struct hy_job_kind {
    /* All are given the step's number within the job. Slots: hy_job_slot(). */
    void (*post)(struct hy_job *job, size_t step);
    void (*join)(struct hy_job *job, size_t step); /* NULL: `take` needs only what was posted */
    void (*take)(struct hy_job *job, size_t step);
};

struct hy_job {
    const struct hy_job_kind *kind;
    struct hy_shm_set *set;
    size_t steps;
    unsigned ahead;       /* steps posted before one is taken, so that others need not wait for us */
    size_t step_bytes;    /* what is posted in the first step, about */
    bool one_posts;       /* only `poster` does */
    unsigned poster;
    uint64_t first;       /* hy_set_run: the step in the set's time */
    bool stream_slots;    /* hy_set_run: what is posted now goes past the caches */
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

/* Allreduce by a choice of the caller's (the benchmark tries them all). */
int hy_shm_allreduce_by(struct hy_shm_set *set, const void *in, void *out, size_t count, enum hy_type type,
                        enum hy_reduce op, double pre, double post, const struct hy_choice *choice);

/* ---- copies (shm_copy.c) ------------------------------------------------------------ */

/* memcpy, or past the caches. */
void hy_copy(void *to, const void *from, size_t n, bool stream);
/* The same, and where it goes past the caches it brings n bytes at `next`, which are read after it, into them. */
void hy_copy_fetching(void *to, const void *from, size_t n, bool stream, const void *next);
/* Stores that went past the caches are in no order with others until this. */
void hy_copy_fence(void);
/* Whether a job is to try out how long its first post takes; then what to make of it. */
bool hy_pace_is_due(const struct hy_shm_set *set, const struct hy_job *job);
void hy_pace_record(struct hy_shm_set *set, const struct hy_job *job, int64_t ns);

#endif
