/* SPDX-License-Identifier: Apache-2.0 */
/* What space.c and space_syntax.c share; private to them. */
#ifndef HY_SEARCH_SPACE_H
#define HY_SEARCH_SPACE_H

#include "search/search.h"

int hy_space_no_memory(struct hy_err *err);    /* returns -ENOMEM */
void hy_space_remove_last(struct hy_space *s); /* the dimension added last, which no constraint uses */

#endif
