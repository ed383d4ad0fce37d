/* SPDX-License-Identifier: Apache-2.0 */
/* Sets texts and lists of a RunSpec under construction. All return 0 or -ENOMEM with a message. */
#ifndef HY_CLIENT_SPEC_FIELDS_H
#define HY_CLIENT_SPEC_FIELDS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "hopyard.pb-c.h"

/* Replaces a text. Takes `value`, which may be NULL (out of memory). */
int hy_spec_set_text(char **field, char *value, struct hy_err *err);
int hy_spec_add_text(char ***list, size_t *count, const char *text, struct hy_err *err);
int hy_spec_copy_texts(char ***list, size_t *ret_count, char *const *texts, size_t count, struct hy_err *err);
/* Takes `text`, which may be NULL (out of memory). */
int hy_spec_add_dim(Hy__RunSpec *spec, char *text, struct hy_err *err);
int hy_spec_add_host(Hy__RunSpec *spec, char *name, uint32_t slots, struct hy_err *err);

#endif
