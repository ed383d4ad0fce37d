/* SPDX-License-Identifier: Apache-2.0 */
#include "hdfs/listing.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"

#define SHOWN_MAX 64u /* bytes of a bad name in a message */

void hy_hdfs_listing_done(struct hy_hdfs_listing *l)
{
    free(l->after);
    free(l->mark);
    *l = (struct hy_hdfs_listing){0};
}

/* `what` completes the message: "sent …", "listed …". */
static int invalid_response(const char *what, const char *url, struct hy_err *err)
{
    return hy_err_set(err, -EPROTO, "the NameNode %s: it is faulty or hostile; nothing more is read from %s", what,
                      url);
}

/* ---- names ------------------------------------------------------------------------- */

static bool is_name(const ProtobufCBinaryData *name)
{
    const char *text = (const char *)name->data;

    if (name->len == 0 || name->len > HY_HDFS_NAME_MAX || memchr(text, '/', name->len) || memchr(text, '\0', name->len))
        return false;
    return !(name->len == 1 && text[0] == '.') && !(name->len == 2 && text[0] == '.' && text[1] == '.');
}

static int bad_name(const ProtobufCBinaryData *name, const char *url, struct hy_err *err)
{
    const size_t shown = name->len < SHOWN_MAX ? name->len : SHOWN_MAX;
    hy_cleanup_buf struct hy_buf b;
    const char *text;

    hy_buf_init(&b, 4 * SHOWN_MAX + 64);
    if (hy_buf_append_str(&b, "listed the invalid name '") == 0 &&
        hy_append_printable(&b, (const char *)name->data, shown) == 0)
        hy_buf_append_str(&b, shown < name->len ? "…'" : "'");
    text = hy_buf_cstr(&b);
    return invalid_response(text ? text : "listed an invalid name", url, err);
}

/* ---- pages ------------------------------------------------------------------------- */

static int check_entry(struct hy_hdfs_listing *l, const Hdfs__FileStatus *s, const char *url, struct hy_err *err)
{
    if (!is_name(&s->path))
        return bad_name(&s->path, url, err);
    l->entries++;
    l->bytes += s->path.len + strlen(s->owner) + strlen(s->group);
    if (l->entries > HY_HDFS_DIRECTORY_MAX || l->bytes > HY_HDFS_LISTING_MAX)
        return invalid_response("listed more entries than a directory can have", url, err);
    return hy_hdfs_check_sizes(s, url, err);
}

/* Detects cycles by Brent's algorithm: the mark moves after 1, 2, 4, 8 … pages, and a listing that returns to it is a
 * cycle. The order of names cannot be used, because NameNodes and routers sort names differently. */
static int advance(struct hy_hdfs_listing *l, const ProtobufCBinaryData *last, const char *url, struct hy_err *err)
{
    const bool is_mark = (l->pages & (l->pages - 1)) == 0;
    char *after = hy_strndup((const char *)last->data, last->len);
    char *mark = after && is_mark ? hy_strdup(after) : NULL;

    if (!after || (is_mark && !mark)) {
        free(after);
        return hy_err_oom(err);
    }
    free(l->after);
    l->after = after;
    if (l->mark && strcmp(l->mark, after) == 0) {
        free(mark);
        return invalid_response("repeats its listing endlessly", url, err);
    }
    if (mark) {
        free(l->mark);
        l->mark = mark;
    }
    return 1;
}

int hy_hdfs_listing_page(struct hy_hdfs_listing *l, const Hdfs__DirectoryListing *page, const char *url,
                         struct hy_err *err)
{
    const size_t n = page->n_partiallisting;
    int rc = 0;

    if (n == 1 && page->partiallisting[0]->path.len == 0)
        return hy_err_set(err, -ENOTDIR, "%s is a file, not a directory", url);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = check_entry(l, page->partiallisting[i], url, err);
    if (rc < 0 || page->remainingentries == 0)
        return rc;
    if (n == 0)
        return invalid_response("announced more entries and sent none", url, err);
    l->pages++;
    return advance(l, &page->partiallisting[n - 1]->path, url, err);
}

int hy_hdfs_check_sizes(const Hdfs__FileStatus *s, const char *url, struct hy_err *err)
{
    if (s->length > INT64_MAX || s->blocksize > INT64_MAX)
        return invalid_response("sent a size that no file can have", url, err);
    return 0;
}
