/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A treap: a search tree by rank, and a heap by a hash of the trial, which is as good as a random priority. So its
 * depth is logarithmic in whatever order the costs arrive, and its shape depends only on the entries.
 */
#include "search/ranking.h"

#include <errno.h>
#include <stdlib.h>

#include "base/mem.h"

struct hy_ranking_node {
    struct hy_ranked entry;
    uint32_t child[2];       /* better, worse; 0: none */
    uint32_t counted, waits; /* in the subtree */
};

/* Nodes are numbered from 1. */
static struct hy_ranking_node *node_of(const struct hy_ranking *r, uint32_t i)
{
    return &r->nodes[i - 1];
}

static uint32_t counted(const struct hy_ranking *r, uint32_t i)
{
    return i ? node_of(r, i)->counted : 0;
}

static uint32_t waits(const struct hy_ranking *r, uint32_t i)
{
    return i ? node_of(r, i)->waits : 0;
}

static uint64_t priority(const struct hy_ranking *r, uint32_t i)
{
    uint64_t x = node_of(r, i)->entry.trial * 0x9e3779b97f4a7c15ULL;

    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
    return x ^ (x >> 32);
}

static bool is_better(struct hy_ranked a, struct hy_ranked b)
{
    return a.cost < b.cost || (a.cost == b.cost && a.trial < b.trial);
}

void hy_ranking_done(struct hy_ranking *r)
{
    free(r->nodes);
    *r = (struct hy_ranking){0};
}

/* Puts a child above its parent; returns the child. */
static uint32_t rotate(struct hy_ranking *r, uint32_t top, int side)
{
    uint32_t risen = node_of(r, top)->child[side];
    struct hy_ranking_node *parent = node_of(r, top), *child = node_of(r, risen);
    uint32_t inner = child->child[!side];
    uint32_t all_counted = parent->counted, all_waits = parent->waits;

    parent->counted += counted(r, inner) - child->counted;
    parent->waits += waits(r, inner) - child->waits;
    child->counted = all_counted;
    child->waits = all_waits;
    parent->child[side] = inner;
    child->child[!side] = top;
    return risen;
}

/* Returns the root of the subtree. */
static uint32_t insert(struct hy_ranking *r, uint32_t top, uint32_t added)
{
    struct hy_ranking_node *n;
    int side;

    if (!top)
        return added;
    n = node_of(r, top);
    side = is_better(node_of(r, added)->entry, n->entry) ? 0 : 1;
    n->child[side] = insert(r, n->child[side], added);
    n->counted++;
    n->waits++;
    return priority(r, n->child[side]) > priority(r, top) ? rotate(r, top, side) : top;
}

int hy_ranking_add(struct hy_ranking *r, struct hy_ranked e)
{
    if (r->count == UINT32_MAX || hy_array_grow(r->nodes, r->count) < 0)
        return -ENOMEM;
    r->nodes[r->count++] = (struct hy_ranking_node){.entry = e, .counted = 1, .waits = 1};
    r->root = insert(r, r->root, r->count);
    return 0;
}

uint32_t hy_ranking_rank(const struct hy_ranking *r, struct hy_ranked e)
{
    uint32_t rank = 0;

    for (uint32_t i = r->root; i;) {
        const struct hy_ranking_node *n = node_of(r, i);
        bool is_worse = is_better(n->entry, e);

        if (is_worse)
            rank += n->counted - counted(r, n->child[1]);
        i = n->child[is_worse];
    }
    return rank;
}

/* On the path from the root to the entry. */
static void subtract(struct hy_ranking *r, struct hy_ranked e, uint32_t from_counted)
{
    uint32_t i = r->root;

    for (;;) {
        struct hy_ranking_node *n = node_of(r, i);

        n->counted -= from_counted;
        n->waits--;
        if (n->entry.trial == e.trial)
            return;
        i = n->child[is_better(n->entry, e)];
    }
}

void hy_ranking_settle(struct hy_ranking *r, struct hy_ranked e)
{
    subtract(r, e, 0);
}

void hy_ranking_withdraw(struct hy_ranking *r, struct hy_ranked e)
{
    subtract(r, e, 1);
}

/* The first one that waits, from the side of better or worse ones. */
static bool find_waiting(const struct hy_ranking *r, int side, struct hy_ranked *ret, uint32_t *ret_rank)
{
    uint32_t i = r->root;

    if (!waits(r, i))
        return false;
    for (;;) {
        const struct hy_ranking_node *n = node_of(r, i);

        if (waits(r, n->child[side]))
            i = n->child[side];
        else if (n->waits > waits(r, n->child[!side]))
            break;
        else
            i = n->child[!side];
    }
    *ret = node_of(r, i)->entry;
    *ret_rank = hy_ranking_rank(r, *ret);
    return true;
}

bool hy_ranking_best_waiting(const struct hy_ranking *r, struct hy_ranked *ret, uint32_t *ret_rank)
{
    return find_waiting(r, 0, ret, ret_rank);
}

bool hy_ranking_worst_waiting(const struct hy_ranking *r, struct hy_ranked *ret, uint32_t *ret_rank)
{
    return find_waiting(r, 1, ret, ret_rank);
}
