/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is chosen by size, between hosts: all of it in one place. Every rank must come to the same answer, so
 * nothing here may depend on the machine; bench/allreduce_hosts.py says what each costs.
 */
#ifndef HY_COLLECTIVE_MESH_CHOICE_H
#define HY_COLLECTIVE_MESH_CHOICE_H

#include <stddef.h>

/* Connections of a link that carry data: in an allreduce half of them for contributions, half for results. */
#define HY_MESH_STREAMS 2u

/* An allreduce of up to so many bytes goes whole, by recursive doubling; a larger one in slices. */
#define HY_MESH_WHOLE_MAX (64u << 10)
/* A broadcast of up to so many bytes goes down a tree, whole; a larger one in slices. */
#define HY_MESH_TREE_MAX (64u << 10)
/* From here on a message is cut into segments that take turns on all streams. */
#define HY_MESH_STRIPE_MIN (512u << 10)

#define HY_MESH_SEGMENT_MIN (16u << 10)  /* bytes */
#define HY_MESH_SEGMENT_MAX (128u << 10) /* those ahead of one peer fit into a core's own cache */
#define HY_MESH_SEGMENTS_AHEAD 4u        /* of each peer, that have come but cannot be reduced yet */
#define HY_MESH_AHEAD_MAX (32u << 20)    /* bytes of all of those together */
#define HY_MESH_MOVE_MAX (1u << 20)      /* bytes moved by one system call, so that all streams get their turn */

/* In what segments a slice of so many bytes goes, among so many peers: eight at least, for things to overlap. */
static inline size_t hy_mesh_segment(size_t slice, unsigned peers)
{
    size_t most = HY_MESH_AHEAD_MAX / HY_MESH_SEGMENTS_AHEAD / (peers ? peers : 1) & ~(size_t)4095;
    size_t segment = (slice / 8 + 4095) & ~(size_t)4095;

    most = most < HY_MESH_SEGMENT_MAX ? most : HY_MESH_SEGMENT_MAX;
    segment = segment < most ? segment : most;
    return segment > HY_MESH_SEGMENT_MIN ? segment : HY_MESH_SEGMENT_MIN;
}

#endif
