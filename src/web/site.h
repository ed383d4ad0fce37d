/* SPDX-License-Identifier: Apache-2.0 */
/* Routes, logins, and the security policy that browsers enforce. */
#ifndef HY_WEB_SITE_H
#define HY_WEB_SITE_H

#include "web/exchange.h"
#include "web/session.h"

/* Whether a Host field is this machine with that port, under a name of loopback, of the address that the server listens
 * on, or of its certificate; copies the name without the port. */
bool hy_site_is_local(const struct hy_web *web, const char *field, uint16_t port, char *ret_name, size_t size);
/* Whether the request comes from the origin with this host. */
bool hy_site_is_origin(const struct hy_exchange *x, const char *host);
/* Whether the browser says that another origin's page sends it. Cookies do not depend on ports: a script of an app has
 * another origin, but its requests have the page's session. Links from elsewhere are fine. */
bool hy_site_is_foreign(const struct hy_http_request *r);
/* Whether one of the request's cookies of that name is the ID of a session. */
bool hy_site_has_session(const struct hy_http_request *r, const char *cookie, const struct hy_sessions *sessions);
/* Selects the route of a request, whose head was read; or sets the reply that refuses it. */
void hy_site_route(struct hy_exchange *x);
/* Appends the lines of a reply's head that restrict what a browser does with it. 0 or -ENOMEM. */
int hy_site_add_policy(const struct hy_exchange *x, struct hy_buf *out);

#endif
