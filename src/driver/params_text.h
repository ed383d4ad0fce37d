/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trial's parameters as text: in its command, in the name of its directory, as JSON. Inactive ones (NAN) are empty
 * in the command, and left out elsewhere.
 */
#ifndef HY_DRIVER_PARAMS_TEXT_H
#define HY_DRIVER_PARAMS_TEXT_H

#include "base/err.h"
#include "search/search.h"

/* Replaces {name} by the value; {{ and }} are literal braces. NULL when out of memory. */
char *hy_command_expand(const char *template, const struct hy_space *space, const struct hy_value *values);

/*
 * The name of the directory: "lr=0.001,dropout=0.45". Unsafe bytes are escaped
 * as %2F; a name over 200 bytes is cut and ends in "~" and a hash of the whole
 * name. "trial-7" without parameters.
 */
char *hy_params_dir(const struct hy_space *space, const struct hy_value *values, uint64_t number);

/* {"lr": 0.001, "act": "relu", "layers": [64,64]}: in the order of the space, numbers as numbers, JSON unchanged. */
char *hy_params_json(const struct hy_space *space, const struct hy_value *values);

/*
 * The values again, of a text that hy_params_json has written for the same space; NAN for names that are missing. Of
 * choices with the same text, the first one. 0, -ENOMEM, or -EINVAL.
 */
int hy_params_parse(const struct hy_space *space, const char *json, struct hy_value *ret);

/* Appends "text" with JSON's quotes and escapes; invalid bytes as for a terminal. */
struct hy_buf;
int hy_append_json_string(struct hy_buf *b, const char *text);

#endif
