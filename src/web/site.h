/* SPDX-License-Identifier: Apache-2.0 */
/* Routes, logins, and the security policy that browsers enforce. */
#ifndef HY_WEB_SITE_H
#define HY_WEB_SITE_H

#include "web/exchange.h"

/* Selects the route of a request, whose head was read; or sets the reply that refuses it. */
void hy_site_route(struct hy_exchange *x);
/* Appends the lines of a reply's head that restrict what a browser does with it. 0 or -ENOMEM. */
int hy_site_add_policy(const struct hy_exchange *x, struct hy_buf *out);

#endif
