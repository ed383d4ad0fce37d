/* SPDX-License-Identifier: Apache-2.0 */
/* Reading JSON, with jansson. */
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

#endif
