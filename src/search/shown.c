/* SPDX-License-Identifier: Apache-2.0 */
#include "search/shown.h"

#include <ctype.h>
#include <string.h>

#include "base/text.h"

struct hy_shown hy_show_n(const char *text, size_t n)
{
    struct hy_shown s;
    size_t at = 0;

    for (size_t i = 0, len; i < n; i += len) {
        len = hy_utf8_len(text + i, n - i);
        if (at + (len ? len : 1) > HY_SHOWN_MAX) {
            memcpy(s.text + at, "...", 3);
            at += 3;
            break;
        }
        if (len == 0 || (len == 1 && iscntrl((unsigned char)text[i]))) {
            s.text[at++] = '?';
            len = 1;
        } else {
            memcpy(s.text + at, text + i, len);
            at += len;
        }
    }
    s.text[at] = '\0';
    return s;
}

struct hy_shown hy_show(const char *text)
{
    return hy_show_n(text, strlen(text));
}
