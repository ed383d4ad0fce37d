/* SPDX-License-Identifier: Apache-2.0 */
/* The page itself: HTML, scripts and styles, which the build puts into the program. */
#ifndef HY_WEB_ASSETS_H
#define HY_WEB_ASSETS_H

#include "web/exchange.h"

struct hy_asset {
    const char *name; /* "app.js" */
    const char *type;
    const char *tag; /* changes with the contents */
    bool is_gzip;
    const unsigned char *bytes;
    size_t size;
};

extern const struct hy_asset hy_assets[]; /* ends with a name NULL */

hy_handler_fn hy_assets_page; /* GET / */
hy_handler_fn hy_assets_file; /* GET /assets/NAME */

#endif
