/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is chosen by size, between hosts: all of it in one place. Every rank must come to the same answer, so
 * nothing here may depend on the machine; bench/allreduce_hosts.py says what each costs.
 */
#ifndef HY_COLLECTIVE_MESH_CHOICE_H
#define HY_COLLECTIVE_MESH_CHOICE_H

#include <stddef.h>

#define HY_MESH_STREAMS 4u /* connections of a link that carry data; half of them each way of an allreduce */

/* An allreduce of up to so many bytes goes whole, by recursive doubling; a larger one in slices. */
#define HY_MESH_WHOLE_MAX (32u << 10)
/* A broadcast of up to so many bytes goes down a tree, whole; a larger one in slices. */
#define HY_MESH_TREE_MAX (64u << 10)
/* From here on a message is cut into segments that take turns on all streams. */
#define HY_MESH_STRIPE_MIN (512u << 10)

#define HY_MESH_SEGMENT_MIN (16u << 10)  /* bytes */
#define HY_MESH_SEGMENT_MAX (256u << 10)
#define HY_MESH_SEGMENTS_AHEAD 4u        /* of each peer, that have come but cannot be reduced yet */
#define HY_MESH_MOVE_MAX (1u << 20)      /* bytes moved by one system call, so that all streams get their turn */

/* A slice of so many bytes goes in segments of so many: eight at least, for things to overlap. */
static inline size_t hy_mesh_segment(size_t slice)
{
    size_t segment = (slice / 8 + 4095) & ~(size_t)4095;

    if (segment < HY_MESH_SEGMENT_MIN)
        return HY_MESH_SEGMENT_MIN;
    return segment < HY_MESH_SEGMENT_MAX ? segment : HY_MESH_SEGMENT_MAX;
}

#endif
