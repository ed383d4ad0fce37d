/* SPDX-License-Identifier: Apache-2.0 */
/* Counts open descriptors, to find leaks. */
#ifndef HY_TESTS_FDS_H
#define HY_TESTS_FDS_H

#include <fcntl.h>

static inline int count_fds(void)
{
    int count = 0;

    for (int fd = 0; fd < 4096; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

#endif
