/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which way a collective goes: every threshold there is, in one table that the
 * benchmark writes (bench/allreduce.py --tune).
 */
#ifndef HY_COLLECTIVE_CHOICE_H
#define HY_COLLECTIVE_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

enum hy_way {
    HY_DIRECT, /* everybody reads all shares and reduces them itself */
    HY_SLICES, /* each member reduces a slice of them, and all read the results */
};

struct hy_choice {
    unsigned members; /* up to so many */
    size_t bytes;     /* and up to so many: the first row that fits */
    enum hy_way way;
    size_t segment;   /* bytes of a step */
    unsigned ahead;   /* steps posted before one is taken */
    bool stream_out;  /* writes results past the caches, where they are too large for them (hy_stream_from) */
};

/* What only moves. */
struct hy_move_choice {
    size_t segment;
    unsigned ahead;
    size_t stream_from; /* bytes: past the caches from there on */
};

struct hy_patience {
    unsigned spins, yields; /* looks before a sleep: with a pause, with a yield to other ranks */
};

enum hy_ring_kind {
    HY_RING_LONG = 1, /* longer than a core's own cache: a slot has left it before it is written again */
    HY_RING_SWAPPED,  /* of two members, and short: each writes where it has read, in its own cache */
};

/* Slots of each member of a set of so many, at most. */
unsigned hy_ring(unsigned members);
/* The kind that suits a machine whose cores have so many bytes of cache each (0: unknown), and its slots. */
enum hy_ring_kind hy_ring_kind(unsigned members, long core_cache);
unsigned hy_ring_slots(unsigned members, enum hy_ring_kind kind);
const struct hy_choice *hy_choose(unsigned members, size_t bytes);
/* Above so many bytes the tensors of all members fall out of a common cache of that size (0 or less: unknown). */
size_t hy_stream_from(unsigned members, long common_cache);
const struct hy_move_choice *hy_move_choice(void);
/* `crowded`: more ranks than processors. */
struct hy_patience hy_patience(bool crowded);

#endif
