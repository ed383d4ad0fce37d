/* SPDX-License-Identifier: Apache-2.0 */
#include "tensorflow/memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define ALIGNED 64u
#define SPARES 8
#define KEPT_LEAST (64u << 10) /* bytes of one: of less the system's own heap takes care */
#define KEPT_MOST (8u << 20)   /* bytes of one, and so 64 MiB of all */

/* Before the memory itself. */
struct head {
    _Alignas(ALIGNED) size_t room;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *spares[SPARES]; /* oldest first */
static size_t count;

static struct head *take_out(size_t i)
{
    struct head *found = spares[i];

    for (count--; i < count; i++)
        spares[i] = spares[i + 1];
    return found;
}

/* One that is large enough, and not much too large. */
static struct head *spare_for(size_t n)
{
    for (size_t i = count; i-- > 0;)
        if (spares[i]->room >= n && spares[i]->room / 2 <= n)
            return take_out(i);
    return NULL;
}

void *hy_memory_take(size_t n)
{
    struct head *h = NULL;

    if (n > SIZE_MAX / 2)
        return NULL;
    if (n >= KEPT_LEAST && n <= KEPT_MOST) {
        pthread_mutex_lock(&lock);
        h = spare_for(n);
        pthread_mutex_unlock(&lock);
    }
    if (!h) {
        h = aligned_alloc(ALIGNED, sizeof *h + (n + ALIGNED - 1) / ALIGNED * ALIGNED);
        if (!h)
            return NULL;
        h->room = n;
    }
    return h + 1;
}

void hy_memory_drop(void *memory)
{
    struct head *h = memory ? (struct head *)memory - 1 : NULL, *old = h;

    if (h && h->room >= KEPT_LEAST && h->room <= KEPT_MOST) {
        pthread_mutex_lock(&lock);
        old = count == SPARES ? take_out(0) : NULL;
        spares[count++] = h;
        pthread_mutex_unlock(&lock);
    }
    free(old);
}
