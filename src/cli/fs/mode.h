/* SPDX-License-Identifier: Apache-2.0 */
/* Permissions of files as text: "rwxr-x---", "750", "u+x,go-w". Pure. */
#ifndef HY_CLI_FS_MODE_H
#define HY_CLI_FS_MODE_H

#include <stdbool.h>

#define HY_RIGHTS_TEXT 10 /* with its NUL */

/* "rwxr-x---"; s, S, t and T as in `ls`. */
void hy_rights_text(unsigned mode, char text[HY_RIGHTS_TEXT]);

/*
 * Applies the first argument of chmod to permissions. Without u, g, o or a it
 * applies to all, regardless of the umask. 0 or -EINVAL.
 */
int hy_rights_change(const char *how, unsigned mode, bool is_dir, unsigned *ret);

#endif
