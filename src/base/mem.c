/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fault.h"

void *hy_malloc(size_t size)
{
    return hy_fault_hit(HY_SEAM_ALLOC) ? NULL : malloc(size ? size : 1);
}

void *hy_calloc(size_t count, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(count, size, &total) || hy_fault_hit(HY_SEAM_ALLOC))
        return NULL;
    return calloc(total ? total : 1, 1);
}

void *hy_reallocarray(void *old, size_t count, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(count, size, &total) || hy_fault_hit(HY_SEAM_ALLOC))
        return NULL;
    return realloc(old, total ? total : 1);
}

int hy_array_grow_at(void *pointer_to_array, size_t count, size_t size)
{
    void *old, *grown;

    if (count & (count - 1)) /* not full: capacity is the next power of two */
        return 0;
    memcpy(&old, pointer_to_array, sizeof old);
    if (count > SIZE_MAX / 2)
        return -ENOMEM;
    grown = hy_reallocarray(old, count ? 2 * count : 1, size);
    if (!grown)
        return -ENOMEM;
    memcpy(pointer_to_array, &grown, sizeof grown);
    return 0;
}

char *hy_strdup(const char *s)
{
    return hy_strndup(s, strlen(s));
}

char *hy_strndup(const char *s, size_t n)
{
    char *copy;

    n = strnlen(s, n);
    copy = hy_malloc(n + 1);
    if (copy) {
        memcpy(copy, s, n);
        copy[n] = '\0';
    }
    return copy;
}

char *hy_asprintf(const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    int n;

    va_start(args, fmt);
    n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0)
        text = hy_malloc((size_t)n + 1);
    if (text) {
        va_start(args, fmt);
        vsnprintf(text, (size_t)n + 1, fmt, args);
        va_end(args);
    }
    return text;
}

void hy_free_at(void *pointer_to_pointer)
{
    free(*(void **)pointer_to_pointer);
}

void hy_close_at(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}
