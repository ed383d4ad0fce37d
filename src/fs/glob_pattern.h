/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Patterns for names. Pure; for glob.c and its tests.
 *
 *     *  any characters    [abc] [a-z]  one of these    {a,b*,c{d,e}}  one of these
 *     ?  any one           [^a] [!a]    any other       \c             c itself
 *
 * A character is a UTF-8 sequence, or a byte that is not part of one. Matching
 * takes at most the length of the pattern times that of the name.
 */
#ifndef HY_FS_GLOB_PATTERN_H
#define HY_FS_GLOB_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#define HY_GLOB_LENGTH_MAX 8192 /* bytes; longer than any path */

struct hy_glob; /* opaque; not thread-safe */

/* A pattern for one component of a path. -EINVAL when a bracket or brace is not closed, -ENAMETOOLONG, -ENOMEM. */
int hy_glob_new(const char *pattern, size_t n, struct hy_glob **ret);
void hy_glob_free(struct hy_glob *g); /* NULL is fine */
void hy_glob_free_at(struct hy_glob **g);
#define hy_cleanup_glob __attribute__((cleanup(hy_glob_free_at)))

bool hy_glob_matches(struct hy_glob *g, const char *name, size_t n);

/* Whether the text has any special character. */
bool hy_glob_is_pattern(const char *text, size_t n);
/* Removes the backslashes of a text without special characters; NULL when out of memory. */
char *hy_glob_unescape(const char *text, size_t n);

/*
 * Expands braces that span components, "/{a/x,b}/y": calls `take` with each
 * resulting pattern ("/a/x/y", "/b/y"), in order, until it returns a value other
 * than 0. Other braces stay. -EINVAL when a bracket or brace is not closed, -E2BIG
 * for more than about two thousand patterns, -ENAMETOOLONG, -ENOMEM.
 */
int hy_glob_expand(const char *pattern, int (*take)(void *arg, const char *one), void *arg);

#endif
