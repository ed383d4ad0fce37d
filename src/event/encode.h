/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the encoders. */
#ifndef HY_EVENT_ENCODE_H
#define HY_EVENT_ENCODE_H

#include <stddef.h>

#include "event.pb-c.h"
#include "event/event.h"

/* Appends the event as a record. */
int hy_event_append(struct hy_buf *b, const Hy__Tb__Event *e);

/* The text as UTF-8 without control characters; NULL when out of memory. */
char *hy_event_text(const char *text, size_t n);

static inline double hy_event_seconds(int64_t wall_ms)
{
    return (double)wall_ms / 1000;
}

#endif
