/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocation through the fault seam, and clean-up at the end of a scope:
 *
 *     hy_cleanup_free char *path = hy_strdup(name);
 *     hy_cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC);
 */
#ifndef HY_BASE_MEM_H
#define HY_BASE_MEM_H

#include <stddef.h>

void *hy_malloc(size_t size);
/* These two check count * size for overflow. */
void *hy_calloc(size_t count, size_t size);
void *hy_reallocarray(void *old, size_t count, size_t size);
char *hy_strdup(const char *s);
char *hy_strndup(const char *s, size_t n);
/* NULL when out of memory. */
char *hy_asprintf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/*
 * Makes room for one more element in an array of `count` elements, which starts as
 * NULL. The capacity is implied: the next power of two. Returns 0, or -ENOMEM with the
 * array unchanged.
 *
 *     if (hy_array_grow(hosts->rows, hosts->count) < 0)
 *         return hy_err_oom(err);
 *     hosts->rows[hosts->count++] = row;
 */
#define hy_array_grow(array, count) hy_array_grow_at(&(array), (count), sizeof *(array))
int hy_array_grow_at(void *pointer_to_array, size_t count, size_t size);

void hy_free_at(void *pointer_to_pointer);
void hy_close_at(int *fd); /* if it is open; sets it to -1 */

#define hy_cleanup_free __attribute__((cleanup(hy_free_at)))
#define hy_cleanup_close __attribute__((cleanup(hy_close_at)))

/* Transfers ownership of the pointer and sets it to NULL. */
#define hy_take(p)                                                                                                     \
    ({                                                                                                                 \
        __typeof__(p) hy_taken_ = (p);                                                                                 \
        (p) = NULL;                                                                                                    \
        hy_taken_;                                                                                                     \
    })

/* Transfers ownership of the descriptor and sets it to -1. */
#define hy_take_fd(fd)                                                                                                 \
    ({                                                                                                                 \
        int hy_taken_fd_ = (fd);                                                                                       \
        (fd) = -1;                                                                                                     \
        hy_taken_fd_;                                                                                                  \
    })

#define HY_COUNT(array) (sizeof(array) / sizeof((array)[0]))

#endif
