/* SPDX-License-Identifier: Apache-2.0 */
#include "feed/feed.h"

int hy_batch_cursor_begin(struct hy_batch_cursor *c, const struct hy_batch *b)
{
    int rc = hy_feed_schema_parse(b->schema, b->schema_n, &c->schema);

    if (rc == 0)
        rc = hy_feed_schema_check(&c->schema, b);
    if (rc < 0) {
        hy_batch_cursor_end(c);
        return rc;
    }
    c->batch = b;
    c->rows = b->rows;
    if (b->rows == 0 && hy_batch_cursor_is_pickled(c) && b->columns[0].values_n)
        c->rows = HY_BATCH_ROWS_UNKNOWN;
    c->next = 0;
    return 0;
}

void hy_batch_cursor_end(struct hy_batch_cursor *c)
{
    hy_feed_schema_done(&c->schema);
    c->batch = NULL;
    c->next = 0;
}
