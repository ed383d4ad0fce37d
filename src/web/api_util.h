/* SPDX-License-Identifier: Apache-2.0 */
/* What the handlers of the API share. */
#ifndef HY_WEB_API_UTIL_H
#define HY_WEB_API_UTIL_H

#include <jansson.h>

#include "client/client.h"
#include "web/exchange.h"

/* A handler's connection to the store, given back at the end of its scope. */
struct hy_store_use {
    struct hy_web *web;
    struct hy_store *store;
};
void hy_store_use_done(struct hy_store_use *u);
#define hy_cleanup_store_use __attribute__((cleanup(hy_store_use_done)))

/* Takes the reference; NULL counts as out of memory. */
void hy_reply_json(struct hy_exchange *x, json_t *value);
/* Appends to an array, and takes the reference. 0 or -ENOMEM. */
int hy_json_append(json_t *array, json_t *value);

/* The run that the path names in its first open segment; otherwise -Exxx, and the reply is set. */
int hy_api_find_run(struct hy_exchange *x, struct hy_store_use *u, struct hy_run_info *ret);
/* A number of the query, if it is there; otherwise `ret` stays. -EINVAL: the reply is set. */
int hy_api_number(struct hy_exchange *x, const char *name, uint64_t max, uint64_t *ret);

#endif
