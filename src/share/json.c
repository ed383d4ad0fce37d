/* SPDX-License-Identifier: Apache-2.0 */
/* Shares as JSON, for the command line and the page. */
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "fs/fs.h"
#include "share/share.h"

struct json_t *hy_share_json(const char *project, const struct hy_share *s)
{
    hy_cleanup_free char *target = hy_fs_join(project, s->path), *name = hy_share_name(project, s->path);
    hy_cleanup_free char *line = hy_share_accept_line(project, s->path);

    return json_pack("{s:o, s:o, s:b, s:I, s:b, s:o, s:o, s:o}", "path", hy_json_text(s->path), "with",
                     hy_json_text(s->user), "write", (int)s->is_writable, "since_ms", (json_int_t)s->since_ms,
                     "complete", (int)(s->state == HY_SHARE_GRANTED), "name", hy_json_text(name), "target",
                     hy_json_text(target), "accept", hy_json_text(line));
}

struct json_t *hy_share_entry_json(const struct hy_share_entry *e, const char *why)
{
    const bool is_writable = !why && hy_fs_access(e->target, W_OK, NULL) == 0;

    return json_pack("{s:o, s:o, s:b, s:o}", "name", hy_json_text(e->name), "target", hy_json_text(e->target), "write",
                     (int)is_writable, "error", hy_json_text(why));
}
