/* SPDX-License-Identifier: Apache-2.0 */
/* Logins: a token that works once, and the sessions of the browsers that have used one. */
#ifndef HY_WEB_SESSION_H
#define HY_WEB_SESSION_H

#include <stdbool.h>
#include <stddef.h>

enum { HY_SECRET_SIZE = 64 + 1 /* 32 bytes in hexadecimal digits, and a NUL */, HY_SESSIONS_MAX = 64 };

struct hy_sessions {
    char token[HY_SECRET_SIZE];
    char ids[HY_SESSIONS_MAX][HY_SECRET_SIZE]; /* the newest replaces the oldest */
    size_t started;                            /* how many there have been */
};

/* Makes the first token. 0 or -EIO. */
int hy_sessions_init(struct hy_sessions *s);
/* Starts a session, and replaces the token. False: the token is wrong, or no random numbers are to be had. */
bool hy_session_start(struct hy_sessions *s, const char *token, char ret_id[HY_SECRET_SIZE]);
bool hy_session_exists(const struct hy_sessions *s, const char *id);
void hy_session_end(struct hy_sessions *s, const char *id);

#endif
