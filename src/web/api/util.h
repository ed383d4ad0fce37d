/* SPDX-License-Identifier: Apache-2.0 */
/* What the handlers of the API share. */
#ifndef HY_WEB_API_UTIL_H
#define HY_WEB_API_UTIL_H

#include <jansson.h>

#include "client/client.h"
#include "view/view.h"
#include "web/exchange.h"
#include "web/server.h"

/* A handler's connection to the store, given back at the end of its scope. */
struct hy_store_use {
    struct hy_web *web;
    const struct hy_project *project;
    struct hy_store *store;
};
/* Opens the store of the project that the request names (?project=ID), or of the server's project. 0 or -Exxx; -ENOENT
 * also when the project has no store yet. */
int hy_store_use_open(struct hy_store_use *u, struct hy_exchange *x, struct hy_err *err);
void hy_store_use_done(struct hy_store_use *u);
#define hy_cleanup_store_use __attribute__((cleanup(hy_store_use_done)))

bool hy_api_has_parameter(const struct hy_exchange *x, const char *name);
/* The project that the request names, or the server's project. */
int hy_api_project(struct hy_exchange *x, const struct hy_project **ret, struct hy_err *err);
/* Whether the list of projects has to be read first (hy_web_projects_update). */
bool hy_api_project_is_unknown(struct hy_exchange *x);

/* The project after `p` (NULL: the first); NULL after the last. */
const struct hy_project *hy_web_next_project(struct hy_web *web, const struct hy_project *p);

/* Takes the reference; NULL counts as out of memory. */
void hy_reply_json(struct hy_exchange *x, json_t *value);
/* The same for JSON as text. rc < 0: reading failed, and `err` may say why. */
void hy_reply_out(struct hy_exchange *x, const struct hy_out *out, int rc, struct hy_err *err);
/* Appends to an array, and takes the reference. 0 or -ENOMEM. */
int hy_json_append(json_t *array, json_t *value);

/* Whether the request has the parameter with the value "1". */
bool hy_api_flag(struct hy_exchange *x, const char *name);
/* The run that the path names in its first open segment; otherwise -Exxx, and the reply is set. */
int hy_api_find_run(struct hy_exchange *x, struct hy_store_use *u, struct hy_run_info *ret);
/* A trial, as JSON, and where its files are. */
struct hy_found_trial {
    int64_t number;
    const char *metric;
    json_t *json;
    char *dir;
    bool is_over;
};
/* The trial that the path names in its second open segment; otherwise -Exxx, and the reply is set. */
int hy_api_find_trial(struct hy_exchange *x, struct hy_store *s, const struct hy_run_info *r,
                      struct hy_found_trial *ret);
void hy_found_trial_done(struct hy_found_trial *f);
/* {"stdout": 1234, "stderr": 0}: bytes. NULL when out of memory. */
json_t *hy_api_output_sizes(const struct hy_run_info *r, const struct hy_found_trial *f);

/* A part of a run's time; wall clock ms. */
struct hy_window {
    int64_t origin; /* the run's beginning, from which the query counts */
    int64_t from, to;
};
#define HY_WINDOW_MAX (UINT64_C(1) << 42)
/* The part that the query names (?from=0&to=60000), or all of it. -EINVAL: the reply is set. */
int hy_api_window(struct hy_exchange *x, const struct hy_run_info *r, struct hy_window *ret);
/* What an attempt used over time; null when that cannot be read; NULL: out of memory. */
json_t *hy_api_usage_json(const struct hy_usage_row *row);
/* A number of the query, if it is there; otherwise `ret` stays. -EINVAL: the reply is set. */
int hy_api_number(struct hy_exchange *x, const char *name, uint64_t max, uint64_t *ret);

#endif
