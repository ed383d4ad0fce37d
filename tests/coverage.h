/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included first by every source of the coverage build: processes that skip the
 * handlers of exit() write their counts, too. They begin anew afterwards, because a
 * child that failed to execute a program shares them with its parent.
 */
#include <unistd.h>

void __gcov_dump(void);
void __gcov_reset(void);

#define _exit(status) (__gcov_dump(), __gcov_reset(), (_exit)(status))
