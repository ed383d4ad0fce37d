/* SPDX-License-Identifier: Apache-2.0 */
/* What the two ends of a local socket share. */
#ifndef HY_WIRE_LOCAL_H
#define HY_WIRE_LOCAL_H

#include <sys/un.h>

struct hy_err;

/* 0, or -ENAMETOOLONG with a sentence. */
int hy_local_address(const char *path, struct sockaddr_un *ret, struct hy_err *err);

#endif
