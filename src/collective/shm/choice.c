/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/shm/choice.h"

#include <stdint.h>

#include "collective/shm/choice_table.h"

unsigned hy_ring(unsigned members)
{
    return members <= ring_long_up_to ? ring_long : ring_short;
}

const struct hy_choice *hy_choose(unsigned members, size_t bytes)
{
    const struct hy_choice *row = choices;

    while (members > row->members || bytes > row->bytes)
        row++; /* the last one fits all */
    return row;
}

const struct hy_move_choice *hy_move_choice(void)
{
    return &moves;
}

struct hy_patience hy_patience(bool crowded)
{
    return crowded ? patience_crowded : patience_alone;
}
