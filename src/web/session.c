/* SPDX-License-Identifier: Apache-2.0 */
#include "web/session.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

int hy_secret_new(char ret[HY_SECRET_SIZE])
{
    uint8_t bytes[(HY_SECRET_SIZE - 1) / 2];

    if (RAND_priv_bytes(bytes, sizeof bytes) != 1)
        return -EIO;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* In the same time for every wrong one. */
static bool is_equal(const char *given, const char *secret)
{
    return secret[0] && strlen(given) == HY_SECRET_SIZE - 1 && CRYPTO_memcmp(given, secret, HY_SECRET_SIZE - 1) == 0;
}

int hy_sessions_init(struct hy_sessions *s)
{
    *s = (struct hy_sessions){0};
    return hy_secret_new(s->token);
}

bool hy_session_start(struct hy_sessions *s, const char *token, char ret_id[HY_SECRET_SIZE])
{
    char id[HY_SECRET_SIZE], next[HY_SECRET_SIZE];

    if (!is_equal(token, s->token) || hy_secret_new(next) < 0 || hy_session_add(s, id) < 0)
        return false;
    memcpy(s->token, next, sizeof next);
    memcpy(ret_id, id, sizeof id);
    return true;
}

int hy_session_add(struct hy_sessions *s, char ret_id[HY_SECRET_SIZE])
{
    char id[HY_SECRET_SIZE];
    int rc = hy_secret_new(id);

    if (rc < 0)
        return rc;
    memcpy(s->ids[s->started++ % HY_SESSIONS_MAX], id, sizeof id);
    memcpy(ret_id, id, sizeof id);
    return 0;
}

static size_t find(const struct hy_sessions *s, const char *id)
{
    for (size_t i = 0; i < HY_SESSIONS_MAX; i++)
        if (is_equal(id, s->ids[i]))
            return i;
    return HY_SESSIONS_MAX;
}

bool hy_session_exists(const struct hy_sessions *s, const char *id)
{
    return find(s, id) < HY_SESSIONS_MAX;
}

void hy_session_end(struct hy_sessions *s, const char *id)
{
    size_t i = find(s, id);

    if (i < HY_SESSIONS_MAX)
        s->ids[i][0] = '\0';
}

void hy_sessions_end_all(struct hy_sessions *s)
{
    for (size_t i = 0; i < HY_SESSIONS_MAX; i++)
        s->ids[i][0] = '\0';
}

int hy_ticket_issue(struct hy_tickets *t, uint64_t app, int64_t now_ms, char ret_secret[HY_SECRET_SIZE])
{
    char secret[HY_SECRET_SIZE];
    int rc = hy_secret_new(secret);
    size_t i = t->issued % HY_TICKETS_MAX;

    if (rc < 0)
        return rc;
    memcpy(t->all[i].secret, secret, sizeof secret);
    memcpy(ret_secret, secret, sizeof secret);
    t->all[i].app = app;
    t->all[i].until_ms = now_ms + HY_TICKET_MS;
    t->issued++;
    return 0;
}

bool hy_ticket_use(struct hy_tickets *t, const char *secret, int64_t now_ms, uint64_t *ret_app)
{
    for (size_t i = 0; i < HY_TICKETS_MAX; i++) {
        if (!is_equal(secret, t->all[i].secret))
            continue;
        t->all[i].secret[0] = '\0';
        *ret_app = t->all[i].app;
        return now_ms < t->all[i].until_ms;
    }
    return false;
}
