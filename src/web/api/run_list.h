/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runs of a project as JSON, kept until its store changes: every open page requests them at every change, and they
 * are made once for all of them.
 */
#ifndef HY_WEB_API_RUN_LIST_H
#define HY_WEB_API_RUN_LIST_H

#include <uv.h>

#include "base/buf.h"

struct hy_store;

struct hy_run_list {
    uv_mutex_t mutex;
    struct hy_store *store; /* of its own: versions of two connections cannot be compared */
    struct hy_buf json;
    int64_t version;  /* of the store, when the JSON was made */
    int64_t until_ms; /* when it has to be made again without a change: a driver may have died */
};

int hy_run_list_init(struct hy_run_list *l);
void hy_run_list_done(struct hy_run_list *l);

#endif
