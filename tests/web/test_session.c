/* SPDX-License-Identifier: Apache-2.0 */
/* Logins: a token works once, sessions are many but bounded. */
#include "support.h"

#include "web/session.h"

HY_TEST(test_a_token_starts_one_session_and_is_replaced)
{
    struct hy_sessions s;
    char token[HY_SECRET_SIZE], id[HY_SECRET_SIZE], other[HY_SECRET_SIZE];

    assert_int_equal(hy_sessions_init(&s), 0);
    memcpy(token, s.token, sizeof token);
    assert_int_equal(strlen(token), 64);
    assert_true(hy_session_start(&s, token, id));
    assert_true(hy_session_exists(&s, id));
    assert_false(hy_session_start(&s, token, other));
    assert_string_not_equal(s.token, token);
    assert_true(hy_session_start(&s, s.token, other));
    assert_string_not_equal(other, id);
    hy_session_end(&s, id);
    assert_false(hy_session_exists(&s, id));
    assert_true(hy_session_exists(&s, other));
    hy_session_end(&s, id); /* it has ended already */
}

HY_TEST(test_only_a_whole_secret_is_accepted)
{
    struct hy_sessions s;
    char wrong[HY_SECRET_SIZE + 1], id[HY_SECRET_SIZE];

    assert_int_equal(hy_sessions_init(&s), 0);
    assert_false(hy_session_start(&s, "", id));
    snprintf(wrong, sizeof wrong, "%.63s", s.token);
    assert_false(hy_session_start(&s, wrong, id));
    snprintf(wrong, sizeof wrong, "%s0", s.token);
    assert_false(hy_session_start(&s, wrong, id));
    snprintf(wrong, sizeof wrong, "%s", s.token);
    wrong[63] = wrong[63] == '0' ? '1' : '0';
    assert_false(hy_session_start(&s, wrong, id));
    assert_false(hy_session_exists(&s, ""));
    assert_false(hy_session_exists(&s, s.token)); /* the token is not a session */
}

HY_TEST(test_the_newest_session_replaces_the_oldest_when_there_are_too_many)
{
    struct hy_sessions s;
    char ids[HY_SESSIONS_MAX + 1][HY_SECRET_SIZE];

    assert_int_equal(hy_sessions_init(&s), 0);
    for (size_t i = 0; i <= HY_SESSIONS_MAX; i++)
        assert_true(hy_session_start(&s, s.token, ids[i]));
    assert_false(hy_session_exists(&s, ids[0]));
    for (size_t i = 1; i <= HY_SESSIONS_MAX; i++)
        assert_true(hy_session_exists(&s, ids[i]));
}

HY_TEST(test_a_ticket_works_once_for_its_app_and_for_a_minute)
{
    struct hy_tickets t = {0};
    char first[HY_SECRET_SIZE], second[HY_SECRET_SIZE];
    uint64_t app = 0;

    assert_int_equal(hy_ticket_issue(&t, 7, 1000, first), 0);
    assert_int_equal(hy_ticket_issue(&t, 8, 1000, second), 0);
    assert_false(hy_ticket_use(&t, "", 1000, &app));
    assert_true(hy_ticket_use(&t, second, 1000 + HY_TICKET_MS - 1, &app));
    assert_int_equal(app, 8);
    assert_false(hy_ticket_use(&t, second, 1000, &app));
    assert_false(hy_ticket_use(&t, first, 1000 + HY_TICKET_MS, &app));
    assert_false(hy_ticket_use(&t, first, 1000, &app)); /* it was tried too late, and is used up */
}

HY_TEST(test_tickets_are_bounded)
{
    struct hy_tickets t = {0};
    char first[HY_SECRET_SIZE], last[HY_SECRET_SIZE];
    uint64_t app;

    assert_int_equal(hy_ticket_issue(&t, 1, 0, first), 0);
    for (int i = 0; i < HY_TICKETS_MAX; i++)
        assert_int_equal(hy_ticket_issue(&t, 2, 0, last), 0);
    assert_false(hy_ticket_use(&t, first, 0, &app));
    assert_true(hy_ticket_use(&t, last, 0, &app));
}

HY_TEST(test_all_sessions_can_be_ended_at_once)
{
    struct hy_sessions s;
    char a[HY_SECRET_SIZE], b[HY_SECRET_SIZE];

    assert_int_equal(hy_sessions_init(&s), 0);
    assert_int_equal(hy_session_add(&s, a), 0);
    assert_int_equal(hy_session_add(&s, b), 0);
    assert_true(hy_session_exists(&s, a) && hy_session_exists(&s, b));
    hy_sessions_end_all(&s);
    assert_false(hy_session_exists(&s, a) || hy_session_exists(&s, b));
}
