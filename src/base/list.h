/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An intrusive, circular doubly linked list. An empty list and a link outside of any list
 * point to themselves, so removing a link twice is fine.
 */
#ifndef HY_BASE_LIST_H
#define HY_BASE_LIST_H

#include <stddef.h>

struct hy_list {
    struct hy_list *next, *prev;
};

static inline void hy_list_init(struct hy_list *l)
{
    l->next = l->prev = l;
}

static inline int hy_list_empty(const struct hy_list *l)
{
    return l->next == l;
}

static inline void hy_list_remove(struct hy_list *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    hy_list_init(l);
}

/* Adds at the end of `list`. */
static inline void hy_list_push(struct hy_list *list, struct hy_list *l)
{
    l->prev = list->prev;
    l->next = list;
    list->prev->next = l;
    list->prev = l;
}

/* Adds at the beginning of `list`. */
static inline void hy_list_push_front(struct hy_list *list, struct hy_list *l)
{
    hy_list_push(list->next, l);
}

#define hy_container(pointer, type, member) ((type *)(void *)((char *)(pointer) - offsetof(type, member)))

/* The entry may be removed in the loop's body. */
#define hy_list_each(it, list)                                                                                         \
    for (struct hy_list *it = (list)->next, *it##_next = it->next; it != (list); it = it##_next, it##_next = it->next)

#endif
