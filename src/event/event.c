/* SPDX-License-Identifier: Apache-2.0 */
#include "event/event.h"

#include <errno.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/text.h"
#include "event/encode.h"
#include "record/record.h"

int hy_event_append(struct hy_buf *b, const Hy__Tb__Event *e)
{
    size_t n = hy__tb__event__get_packed_size(e);
    uint8_t *at;
    int rc = hy_record_begin(b, n, &at);

    if (rc < 0)
        return rc;
    hy__tb__event__pack(e, at);
    hy_record_end(b, at, n);
    return 0;
}

char *hy_event_text(const char *text, size_t n)
{
    hy_cleanup_buf struct hy_buf clean;
    const char *copy;

    hy_buf_init(&clean, 4 * n); /* every byte as \xNN */
    if (hy_append_printable(&clean, text, n) < 0)
        return NULL;
    copy = hy_buf_cstr(&clean);
    return copy ? hy_strdup(copy) : NULL;
}

int hy_event_version(struct hy_buf *b, int64_t wall_ms)
{
    Hy__Tb__Event e = HY__TB__EVENT__INIT;

    e.wall_time = hy_event_seconds(wall_ms);
    e.what_case = HY__TB__EVENT__WHAT_FILE_VERSION;
    e.file_version = (char *)"brain.Event:2";
    return hy_event_append(b, &e);
}

int hy_event_scalar(struct hy_buf *b, const char *tag, int64_t step, double value, int64_t wall_ms)
{
    hy_cleanup_free char *clean = hy_event_text(tag, strlen(tag));
    Hy__Tb__Summary__Value v = HY__TB__SUMMARY__VALUE__INIT, *values[] = {&v};
    Hy__Tb__Summary summary = HY__TB__SUMMARY__INIT;
    Hy__Tb__Event e = HY__TB__EVENT__INIT;

    if (!clean)
        return -ENOMEM;
    v.tag = clean;
    v.value_case = HY__TB__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    v.simple_value = (float)value;
    summary.value = values;
    summary.n_value = HY_COUNT(values);
    e.wall_time = hy_event_seconds(wall_ms);
    e.step = step;
    e.what_case = HY__TB__EVENT__WHAT_SUMMARY;
    e.summary = &summary;
    return hy_event_append(b, &e);
}
