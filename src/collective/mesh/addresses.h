/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses at which other machines can reach this process. */
#ifndef HY_COLLECTIVE_ADDRESSES_H
#define HY_COLLECTIVE_ADDRESSES_H

#include <stddef.h>

#include "base/err.h"

/*
 * The addresses of all interfaces that are up, loopback last. HOPYARD_INTERFACES or HOROVOD_GLOO_IFACE (names,
 * separated by commas) restricts them. The caller frees each address and the list.
 */
int hy_host_addresses(char ***ret_addresses, size_t *ret_count, struct hy_err *err);

#endif
