/* SPDX-License-Identifier: Apache-2.0 */
#include "web/session.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int new_secret(char ret[HY_SECRET_SIZE])
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
    return new_secret(s->token);
}

bool hy_session_start(struct hy_sessions *s, const char *token, char ret_id[HY_SECRET_SIZE])
{
    char id[HY_SECRET_SIZE], next[HY_SECRET_SIZE];

    if (!is_equal(token, s->token) || new_secret(id) < 0 || new_secret(next) < 0)
        return false;
    memcpy(s->token, next, sizeof next);
    memcpy(s->ids[s->started++ % HY_SESSIONS_MAX], id, sizeof id);
    memcpy(ret_id, id, sizeof id);
    return true;
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
