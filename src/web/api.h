/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of the JSON API, /api/v1/… (docs/api.yaml describes them). They run in threads of the pool. */
#ifndef HY_WEB_API_H
#define HY_WEB_API_H

#include "web/exchange.h"

hy_handler_fn hy_api_runs;   /* GET /runs */
hy_handler_fn hy_api_run;    /* GET /runs/RUN */
hy_handler_fn hy_api_trials; /* GET /runs/RUN/trials?sort=value&offset=0&limit=100 */
hy_handler_fn hy_api_columns; /* GET /runs/RUN/columns */
hy_handler_fn hy_api_trial;  /* GET /runs/RUN/trials/TRIAL */
hy_handler_fn hy_api_output; /* GET /runs/RUN/trials/TRIAL/output/stdout?offset=0&follow=1 */
hy_handler_fn hy_api_stop;   /* POST /runs/RUN/stop */
hy_handler_fn hy_api_events; /* GET /events: an event whenever the store has changed */

#endif
