/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns for names: pure, for glob.c and those who test it.
 *
 *     *  any characters    [abc] [a-z]  one of these    {a,b*,c{d,e}}  one of these
 *     ?  any one           [^a] [!a]    any other       \c             c itself
 *
 * A character is one of UTF-8, or a byte that is none. No pattern takes longer
 * than its length times that of the name.
 */
#ifndef HY_FS_GLOB_H
#define HY_FS_GLOB_H

#include <stdbool.h>
#include <stddef.h>

#define HY_GLOB_LENGTH_MAX 8192 /* bytes; no path is longer */

struct hy_glob; /* opaque; not thread-safe */

/* A pattern of one part of a path. -EINVAL when a bracket or brace is not closed, -ENAMETOOLONG, -ENOMEM. */
int hy_glob_new(const char *pattern, size_t n, struct hy_glob **ret);
void hy_glob_free(struct hy_glob *g); /* NULL is fine */
void hy_glob_free_at(struct hy_glob **g);
#define hy_cleanup_glob __attribute__((cleanup(hy_glob_free_at)))

bool hy_glob_matches(struct hy_glob *g, const char *name, size_t n);

/* Whether there is anything in it that is not just a character. */
bool hy_glob_is_pattern(const char *text, size_t n);
/* Takes backslashes out of text that is no pattern; NULL when out of memory. */
char *hy_glob_unescape(const char *text, size_t n);

/*
 * Braces over parts of a path, "/{a/x,b}/y": calls `take` with each pattern that
 * has none of these ("/a/x/y", "/b/y"), in their order, until it does not return
 * 0. Other braces stay. -EINVAL when a bracket or brace is not closed, -E2BIG for
 * some thousand patterns, -ENAMETOOLONG, -ENOMEM.
 */
int hy_glob_expand(const char *pattern, int (*take)(void *arg, const char *one), void *arg);

#endif
