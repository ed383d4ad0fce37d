/* SPDX-License-Identifier: Apache-2.0 */
#include "tensorflow/memory.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#define ALIGNED 64u
#define SPARES 8
#define CACHED_MIN (64u << 10) /* bytes of a block: malloc caches smaller ones */
#define CACHED_MAX (8u << 20)  /* bytes of a block, and so 64 MiB in total */

/* Precedes the memory. */
struct head {
    _Alignas(ALIGNED) size_t size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct head *spares[SPARES]; /* oldest first */
static size_t count;

static struct head *remove_spare(size_t i)
{
    struct head *found = spares[i];

    for (count--; i < count; i++)
        spares[i] = spares[i + 1];
    return found;
}

/* A block that is large enough, and less than twice as large as needed. */
static struct head *find_spare(size_t n)
{
    for (size_t i = count; i-- > 0;)
        if (spares[i]->size >= n && spares[i]->size / 2 <= n)
            return remove_spare(i);
    return NULL;
}

void *hy_memory_alloc(size_t n)
{
    struct head *h = NULL;

    if (n > SIZE_MAX / 2)
        return NULL;
    if (n >= CACHED_MIN && n <= CACHED_MAX) {
        pthread_mutex_lock(&lock);
        h = find_spare(n);
        pthread_mutex_unlock(&lock);
    }
    if (!h) {
        h = aligned_alloc(ALIGNED, sizeof *h + (n + ALIGNED - 1) / ALIGNED * ALIGNED);
        if (!h)
            return NULL;
        h->size = n;
    }
    return h + 1;
}

void hy_memory_free(void *memory)
{
    struct head *h = memory ? (struct head *)memory - 1 : NULL, *old = h;

    if (h && h->size >= CACHED_MIN && h->size <= CACHED_MAX) {
        pthread_mutex_lock(&lock);
        old = count == SPARES ? remove_spare(0) : NULL;
        spares[count++] = h;
        pthread_mutex_unlock(&lock);
    }
    free(old);
}
