/* SPDX-License-Identifier: Apache-2.0 */
/* Logins: a token that works once, and the sessions of the browsers that have used one. */
#ifndef HY_WEB_SESSION_H
#define HY_WEB_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HY_SECRET_SIZE = 64 + 1 /* 32 bytes in hexadecimal digits, and a NUL */, HY_SESSIONS_MAX = 64 };

struct hy_sessions {
    char token[HY_SECRET_SIZE];
    char ids[HY_SESSIONS_MAX][HY_SECRET_SIZE]; /* the newest replaces the oldest */
    size_t started;                            /* how many there have been */
};

/* Makes the first token. 0 or -EIO. */
int hy_sessions_init(struct hy_sessions *s);
/* Starts a session, and replaces the token. False: the token is wrong, or there are no random numbers. */
bool hy_session_start(struct hy_sessions *s, const char *token, char ret_id[HY_SECRET_SIZE]);
/* Starts one without a token. 0 or -EIO. */
int hy_session_add(struct hy_sessions *s, char ret_id[HY_SECRET_SIZE]);
bool hy_session_exists(const struct hy_sessions *s, const char *id);
void hy_session_end(struct hy_sessions *s, const char *id);
void hy_sessions_end_all(struct hy_sessions *s);

int hy_secret_new(char ret[HY_SECRET_SIZE]); /* 0 or -EIO */

/* Tickets: each opens one app, works once, and expires after a minute. */
enum { HY_TICKETS_MAX = 16, HY_TICKET_MS = 60000 };

struct hy_tickets {
    struct {
        char secret[HY_SECRET_SIZE];
        uint64_t app;
        int64_t until_ms;
    } all[HY_TICKETS_MAX]; /* the newest replaces the oldest */
    size_t issued;
};

/* 0 or -EIO. `now_ms` is monotonic. */
int hy_ticket_issue(struct hy_tickets *t, uint64_t app, int64_t now_ms, char ret_secret[HY_SECRET_SIZE]);
/* False: it is invalid, expired, or already used. */
bool hy_ticket_use(struct hy_tickets *t, const char *secret, int64_t now_ms, uint64_t *ret_app);

#endif
