/* SPDX-License-Identifier: Apache-2.0 */
/* JSON, with jansson. */
#ifndef HY_BASE_JSON_H
#define HY_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

/* jansson's memory through the fault seam. hy_json_load calls it too. */
void hy_json_init(void);

/*
 * json_loadb that fails when out of memory: jansson's lexer ignores a failed allocation, so that a value would lack a
 * byte, or an assertion would abort. Returns NULL then, and `where` (which may be NULL) has no text.
 */
json_t *hy_json_load(const char *text, size_t n, size_t flags, json_error_t *where);
/* The same for a NUL-terminated text; NULL for NULL. */
json_t *hy_json_parse(const char *text, size_t flags);

/* json_dumps that fails when out of memory: jansson's ignores a failed allocation, and its result would be incomplete.
 */
char *hy_json_dump(const json_t *json, size_t flags);

/* A number, or null for NaN and infinities, which JSON does not have. */
json_t *hy_json_number(double value);
/* Text as UTF-8: other bytes become \xNN. NULL is null. */
json_t *hy_json_text(const char *text);
/* Sets object[name] and takes the value. 0, or -ENOMEM, also for a NULL value or object. */
int hy_json_set(json_t *object, const char *name, json_t *value);

void hy_json_free_at(json_t **json);
#define hy_cleanup_json __attribute__((cleanup(hy_json_free_at)))

#endif
