/* SPDX-License-Identifier: Apache-2.0 */
/* Handlers of the JSON API, /api/v1/… (described in docs/openapi.yaml). They run in threads of the pool. */
#ifndef HY_WEB_API_H
#define HY_WEB_API_H

#include "web/exchange.h"

hy_handler_fn hy_api_projects; /* GET /projects */
hy_handler_fn hy_api_scripts; /* GET /scripts */
hy_handler_fn hy_api_runs;   /* GET /runs */
hy_handler_fn hy_api_run;    /* GET /runs/RUN */
hy_handler_fn hy_api_importance; /* GET /runs/RUN/importance */
hy_handler_fn hy_api_timeline; /* GET /runs/RUN/timeline?from=0&to=60000&limit=5000 */
hy_handler_fn hy_api_usage;  /* GET /runs/RUN/usage?from=0&to=60000&points=300 */
hy_handler_fn hy_api_cluster; /* GET /cluster */
hy_handler_fn hy_api_trials; /* GET /runs/RUN/trials?sort=-param:lr&state=done&offset=0&limit=100 */
hy_handler_fn hy_api_columns; /* GET /runs/RUN/columns?since=SEQ */
hy_handler_fn hy_api_curves; /* GET /runs/RUN/curves?name=loss&trials=1,2,3 or &best=10 */
hy_handler_fn hy_api_trial;  /* GET /runs/RUN/trials/TRIAL */
hy_handler_fn hy_api_output; /* GET /runs/RUN/trials/TRIAL/output/stdout?offset=0&follow=1 */
hy_handler_fn hy_api_output_search; /* GET /runs/RUN/trials/TRIAL/output/stdout/search?text=error&offset=0 */
hy_handler_fn hy_api_start;        /* POST /runs */
hy_handler_fn hy_api_stop;         /* POST /runs/RUN/stop */
hy_handler_fn hy_api_resume;       /* POST /runs/RUN/resume */
hy_handler_fn hy_api_run_change;   /* PATCH /runs/RUN */
hy_handler_fn hy_api_trial_change; /* PATCH /runs/RUN/trials/TRIAL */
hy_handler_fn hy_api_run_remove;   /* DELETE /runs/RUN */
/* Parameters: ?path=Resources/train&with=bob&write=1, ?target=/home/alice/churn/Resources/train&name=churn::train */
hy_handler_fn hy_api_shares;       /* GET /shares */
hy_handler_fn hy_api_share_add;    /* POST /shares */
hy_handler_fn hy_api_share_remove; /* DELETE /shares */
hy_handler_fn hy_api_share_accept; /* POST /shares/received */
hy_handler_fn hy_api_share_forget; /* DELETE /shares/received */
hy_handler_fn hy_api_apps; /* GET /apps */
hy_handler_fn hy_api_tensorboard; /* POST /apps/tensorboard?runs=3,5 */
hy_handler_fn hy_api_jupyter; /* POST /apps/jupyter?mode=experiments&executors=2 */
hy_handler_fn hy_api_app; /* GET /apps/APP */
hy_handler_fn hy_api_app_open; /* POST /apps/APP/open */
hy_handler_fn hy_api_app_end; /* DELETE /apps/APP */
hy_handler_fn hy_api_events; /* GET /events: an event whenever the store has changed */

/* Files of the project, and of a trial (/runs/RUN/trials/TRIAL/files…). Paths are parameters: ?path=Resources/a.csv */
hy_handler_fn hy_api_files;         /* GET /files?sort=-size&offset=0&limit=500 */
hy_handler_fn hy_api_file_content;  /* GET /files/content: a file, or a directory as a tar archive */
hy_handler_fn hy_api_file_preview;  /* GET /files/preview */
hy_handler_fn hy_api_file_folder;   /* POST /files/folder */
hy_handler_fn hy_api_file_move;     /* POST /files/move?from=a&to=b&overwrite=1 */
hy_handler_fn hy_api_file_delete;   /* POST /files/delete?recursive=1 */
hy_handler_fn hy_api_upload_start;  /* POST /files/uploads?size=10&modified=0&overwrite=1 */
hy_handler_fn hy_api_upload_piece;  /* PATCH /files/uploads?…&offset=0 */
hy_handler_fn hy_api_upload_cancel; /* DELETE /files/uploads?… */
hy_handler_fn hy_api_trial_files;
hy_handler_fn hy_api_trial_file_content;
hy_handler_fn hy_api_trial_file_preview;
hy_handler_fn hy_api_models; /* GET /models */

#endif
