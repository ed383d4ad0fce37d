/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/shm/choice.h"

#include <stdint.h>

#include "collective/shm/choice_table.h"

unsigned hy_ring(unsigned members)
{
    return members <= ring_long_up_to ? ring_long : ring_short;
}

enum hy_ring_kind hy_ring_kind(unsigned members, long core_cache)
{
    return members == 2 && core_cache >= ring_swapped_from ? HY_RING_SWAPPED : HY_RING_LONG;
}

unsigned hy_ring_slots(unsigned members, enum hy_ring_kind kind)
{
    return kind == HY_RING_SWAPPED ? ring_swapped : hy_ring(members);
}

const struct hy_choice *hy_choose(unsigned members, size_t bytes)
{
    const struct hy_choice *row = choices;

    while (members > row->members || bytes > row->bytes)
        row++; /* the last one fits all */
    return row;
}

size_t hy_stream_from(unsigned members, long common_cache)
{
    size_t share = common_cache > 0 ? (size_t)common_cache / members / stream_share : 0;

    return share > moves.stream_from ? share : moves.stream_from;
}

const struct hy_move_choice *hy_move_choice(void)
{
    return &moves;
}

struct hy_patience hy_patience(bool crowded)
{
    return crowded ? patience_crowded : patience_alone;
}
