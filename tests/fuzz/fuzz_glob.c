/* SPDX-License-Identifier: Apache-2.0 */
/* Patterns for names: the first line is a pattern, the rest a name. Compared with the simplest possible matcher. */
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "fs/glob_pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static size_t length_of(const char *s, size_t n)
{
    size_t length = hy_utf8_len(s, n);

    return length ? length : 1;
}

/* Stars and question marks only; exponential. */
static bool matches_simply(const char *p, size_t m, const char *s, size_t n)
{
    size_t length;

    if (m == 0)
        return n == 0;
    if (*p == '*')
        return matches_simply(p + 1, m - 1, s, n) ||
               (n && matches_simply(p, m, s + length_of(s, n), n - length_of(s, n)));
    if (n == 0)
        return false;
    if (*p == '?')
        return matches_simply(p + 1, m - 1, s + length_of(s, n), n - length_of(s, n));
    length = length_of(p, m);
    return length == length_of(s, n) && memcmp(p, s, length) == 0 &&
           matches_simply(p + length, m - length, s + length, n - length);
}

static bool is_simple(const char *p, size_t m, size_t n)
{
    for (size_t i = 0; i < m; i++)
        if (strchr("[{\\", p[i]))
            return false;
    return m <= 12 && n <= 16;
}

/* Every name matches itself, escaped, and no shorter name does. */
static void check_itself(const char *name, size_t n)
{
    char *escaped = malloc(2 * n + 1), *plain;
    struct hy_glob *g = NULL;
    size_t m = 0;

    check(escaped != NULL);
    for (size_t i = 0, length; i < n; i += length) {
        length = length_of(name + i, n - i);
        escaped[m++] = '\\';
        memcpy(escaped + m, name + i, length);
        m += length;
    }
    check(!hy_glob_is_pattern(escaped, m));
    plain = hy_glob_unescape(escaped, m);
    check(plain && strlen(plain) == n && memcmp(plain, name, n) == 0);
    if (m <= HY_GLOB_LENGTH_MAX) {
        check(hy_glob_new(escaped, m, &g) == 0);
        check(hy_glob_matches(g, name, n));
        check(n == 0 || !hy_glob_matches(g, name, n - 1));
    }
    hy_glob_free(g);
    free(plain);
    free(escaped);
}

/* No expandable brace is left, and every component is a valid pattern. */
static int take(void *arg, const char *one)
{
    size_t *count = arg;

    for (const char *s = one; *s;) {
        size_t n = strcspn(s, "/");
        struct hy_glob *g = NULL;

        check(hy_glob_new(s, n, &g) == 0);
        hy_glob_free(g);
        s += n + (s[n] == '/');
    }
    return ++*count == 200; /* enough */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1), *name;
    struct hy_glob *g = NULL;
    size_t m, n, count = 0;

    check(text != NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    m = strcspn(text, "\n");
    name = text + m + (text[m] == '\n');
    n = strlen(name);
    text[m] = '\0';
    if (hy_glob_new(text, m, &g) == 0) {
        bool matches = hy_glob_matches(g, name, n);

        check(matches == hy_glob_matches(g, name, n));
        if (is_simple(text, m, n))
            check(matches == matches_simply(text, m, name, n));
    }
    hy_glob_free(g);
    check_itself(name, n);
    check(hy_glob_expand(text, take, &count) <= 1 && count <= 200);
    free(text);
    return 0;
}
