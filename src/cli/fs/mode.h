/* SPDX-License-Identifier: Apache-2.0 */
/* Who may do what with a file, as text: "rwxr-x---", "750", "u+x,go-w". Pure. */
#ifndef HY_CLI_FS_MODE_H
#define HY_CLI_FS_MODE_H

#include <stdbool.h>

#define HY_RIGHTS_TEXT 10 /* with its NUL */

/* "rwxr-x---"; s, S, t and T as `ls` has them. */
void hy_rights_text(unsigned mode, char text[HY_RIGHTS_TEXT]);

/*
 * What chmod's first argument makes of the rights that were there. Without u, g,
 * o or a all are meant, whatever the umask. 0 or -EINVAL.
 */
int hy_rights_change(const char *how, unsigned mode, bool is_dir, unsigned *ret);

#endif
