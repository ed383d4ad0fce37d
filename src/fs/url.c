/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/fs.h"

#include <ctype.h>
#include <string.h>

#include "base/mem.h"

size_t hy_url_scheme(const char *url)
{
    size_t n = 0;

    while (isalnum((unsigned char)url[n]) || (n && url[n] && strchr("+-.", url[n])))
        n++;
    return n > 1 && url[n] == ':' && url[n + 1] == '/' ? n : 0;
}

bool hy_url_is_local(const char *url)
{
    const size_t n = hy_url_scheme(url);

    return n == 0 || (n == 4 && memcmp(url, "file", 4) == 0);
}

size_t hy_url_root(const char *url)
{
    size_t n = hy_url_scheme(url);

    if (n) {
        n++;
        if (strncmp(url + n, "//", 2) == 0)
            n += 2 + strcspn(url + n + 2, "/");
    }
    while (url[n] == '/')
        n++;
    return n;
}

size_t hy_url_name(const char *url, size_t *ret_length)
{
    const size_t root = hy_url_root(url);
    size_t end = strlen(url), begin;

    while (end > root && url[end - 1] == '/')
        end--;
    begin = end;
    while (begin > root && url[begin - 1] != '/')
        begin--;
    *ret_length = end - begin;
    return begin;
}

char *hy_url_parent(const char *url)
{
    const size_t root = hy_url_root(url);
    size_t length, n = hy_url_name(url, &length);

    while (n > root && url[n - 1] == '/')
        n--;
    return n ? hy_strndup(url, n) : hy_strdup(".");
}
