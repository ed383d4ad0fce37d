/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions over real sockets, and how they end. */
#include "wire_cluster.h"

#define SHORT_MS 300

HY_TEST_WITH(test_a_session_carries_messages_and_data_both_ways, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];

    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && a->ups == 1);
    assert_string_equal(hy_peer_identity(w.driver.peer), "agent-1");
    assert_int_equal(strncmp(hy_peer_address(w.driver.peer), "127.0.0.1:", 10), 0);
    assert_ptr_equal(hy_peer_data(w.driver.peer), &w.driver);
    w.driver.data_want = a->data_want = 3000000;
    side_fill(&w.driver);
    side_fill(a);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(side_send(&w.driver, w.driver.peer), 0);
        assert_int_equal(side_send(a, a->peer), 0);
    }
    world_until(&w, a->got == 100 && w.driver.got == 100);
    world_until(&w, a->data_got == 3000000 && w.driver.data_got == 3000000);
    world_until(&w, hy_peer_unacked(a->peer, 0) + hy_peer_unacked(a->peer, 1) == 0);
    assert_int_equal(w.keys_asked, 1);
    world_done(&w);
}

HY_TEST_WITH(test_a_message_waits_for_the_flush, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];

    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && a->ups == 1);
    w.flushes = 0;
    assert_int_equal(side_send(&w.driver, w.driver.peer), 0);
    assert_int_equal(side_send(a, a->peer), 0);
    hy_net_flush(a->net);
    world_until(&w, w.driver.got == 1); /* the other direction takes as long */
    for (int i = 0; i < 100; i++)
        uv_run(&w.loop, UV_RUN_NOWAIT);
    assert_int_equal(a->got, 0);
    hy_net_flush(w.driver.net);
    world_until(&w, a->got == 1);
    world_done(&w);
}

/* ---- faults ------------------------------------------------------------------------------------ */

struct amounts {
    uint64_t messages, data;
};

static void exchange(struct world *w, struct side *a, const struct amounts *x)
{
    struct side *d = &w->driver;

    d->data_want = a->data_want = x->data;
    while (d->got < x->messages || a->got < x->messages || d->data_got < x->data || a->data_got < x->data) {
        if (d->peer && d->sent < x->messages)
            (void)side_send(d, d->peer);
        if (a->peer && a->sent < x->messages)
            (void)side_send(a, a->peer);
        if (d->peer)
            side_fill(d);
        if (a->peer)
            side_fill(a);
        if (d->gones || a->gones)
            fail_msg("the session was given up: %s %s", d->why, a->why);
        world_turn(w);
    }
}

/* Everything arrives exactly once (side_message and side_data check it), whatever fails. */
static int session_scenario(void *arg)
{
    struct world w;
    int rc = world_init(&w, LONG_MS);

    if (rc == 0)
        rc = world_dial(&w, "agent-1", LONG_MS);
    if (rc == 0)
        exchange(&w, &w.agents[0], arg);
    world_done(&w);
    return rc;
}

HY_TEST_WITH(test_a_lost_frame_loses_and_repeats_nothing, NULL, log_restore)
{
    struct amounts x = {60, 400000};

    log_begin();
    hy_each_fault(HY_SEAM_WIRE, session_scenario, &x);
    assert_true(log_count("a frame was lost") > 100); /* one per link that was cut */
    log_end();
}

HY_TEST_WITH(test_links_survive_failed_allocations, NULL, log_restore)
{
    struct amounts x = {10, 300000};

    log_begin();
    hy_each_fault(HY_SEAM_ALLOC, session_scenario, &x);
    log_end();
}

HY_TEST_WITH(test_links_survive_failed_system_calls, NULL, log_restore)
{
    struct amounts x = {10, 300000};

    log_begin();
    hy_each_fault(HY_SEAM_SYS, session_scenario, &x);
    log_end();
}

/* ---- how sessions end ----------------------------------------------------------------------------- */

HY_TEST_WITH(test_a_silent_agent_is_given_up, NULL, log_restore)
{
    struct world w;

    log_begin();
    assert_int_equal(world_init(&w, 300), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && w.agents[0].ups == 1);
    side_close(&w.agents[0]);
    world_until(&w, w.driver.gones == 1);
    assert_non_null(strstr(w.driver.why, "nothing received from 127.0.0.1:"));
    log_end();
    world_done(&w);
}

HY_TEST_WITH(test_pings_keep_a_quiet_session_alive, NULL, log_restore)
{
    struct world w;
    uint64_t end;

    assert_int_equal(world_init(&w, 300), 0);
    assert_int_equal(world_dial(&w, "agent-1", 300), 0);
    world_until(&w, w.driver.ups == 1 && w.agents[0].ups == 1);
    end = uv_now(&w.loop) + 1000;
    world_until(&w, uv_now(&w.loop) >= end);
    assert_int_equal(w.driver.gones + w.agents[0].gones, 0);
    assert_int_equal(w.keys_asked, 1); /* on the first connection */
    world_done(&w);
}

/* The loop was stalled for longer than the allowed silence; data that arrived meanwhile still counts. */
HY_TEST_WITH(test_a_stalled_loop_does_not_give_up_its_peers, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];

    assert_int_equal(world_init(&w, 300), 0);
    assert_int_equal(world_dial(&w, "agent-1", 300), 0);
    world_until(&w, w.driver.ups == 1 && a->ups == 1);
    assert_int_equal(side_send(&w.driver, w.driver.peer), 0);
    assert_int_equal(side_send(a, a->peer), 0);
    world_flush(&w);
    usleep(400000);
    world_until(&w, a->got == 1 && w.driver.got == 1);
    assert_int_equal(a->gones + w.driver.gones, 0);
    world_done(&w);
}

/* Several times the silence that ends a session: the paused end sends pings, and no peer counts as silent. */
HY_TEST_WITH(test_a_paused_net_reads_nothing_and_gives_up_no_peer, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0], *late = &w.agents[1];
    uint64_t until;

    assert_int_equal(world_init(&w, SHORT_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", SHORT_MS), 0);
    world_until(&w, w.driver.ups == 1 && a->ups == 1);
    hy_net_pause(w.driver.net, true);
    assert_int_equal(world_dial(&w, "agent-2", SHORT_MS), 0); /* a link that connects meanwhile is paused too */
    world_until(&w, late->ups == 1);
    assert_int_equal(side_send(a, a->peer), 0);
    until = uv_now(&w.loop) + 4 * SHORT_MS;
    world_until(&w, uv_now(&w.loop) > until);
    assert_int_equal(w.driver.got, 0);
    assert_int_equal(w.driver.gones + a->gones + late->gones, 0);
    hy_net_pause(w.driver.net, false);
    world_until(&w, w.driver.got == 1);
    assert_int_equal(w.driver.gones + a->gones + late->gones, 0);
    world_done(&w);
}

HY_TEST_WITH(test_a_dialer_gives_up_without_an_answer, NULL, log_restore)
{
    struct world w;

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    side_close(&w.driver);
    assert_int_equal(world_dial(&w, "agent-1", 300), 0);
    world_until(&w, w.agents[0].gones == 1);
    assert_non_null(strstr(w.agents[0].why, "no answer from 127.0.0.1:"));
    assert_non_null(strstr(w.agents[0].why, "connection refused"));
    assert_int_equal(log_count("reconnecting"), 1);
    log_end();
    world_done(&w);
}

HY_TEST_WITH(test_an_agent_whose_session_was_closed_is_notified, NULL, log_restore)
{
    struct world w;

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && w.agents[0].ups == 1);
    hy_peer_close(w.driver.peer, 0);
    world_until(&w, w.agents[0].gones == 1);
    assert_string_equal(w.agents[0].why, "the driver no longer has a session for this agent");
    assert_int_equal(w.driver.ups, 1);
    assert_int_equal(w.driver.gones, 0);
    log_end();
    world_done(&w);
}

HY_TEST_WITH(test_a_second_agent_with_the_same_name_waits_until_the_first_is_given_up, NULL, log_restore)
{
    struct world w;

    log_begin();
    assert_int_equal(world_init(&w, 600), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && w.agents[0].ups == 1);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, log_count("another agent with this name is connected") > 0);
    assert_int_equal(w.driver.ups, 1);
    assert_int_equal(w.agents[1].ups, 0);
    assert_int_equal(side_send(&w.agents[0], w.agents[0].peer), 0); /* the first one still works */
    world_until(&w, w.driver.got == 1);
    side_close(&w.agents[0]);
    world_until(&w, w.agents[1].ups == 1);
    assert_int_equal(w.driver.gones, 1);
    assert_int_equal(w.driver.ups, 2);
    log_end();
    world_done(&w);
}

HY_TEST_WITH(test_closing_sends_queued_data, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && a->ups == 1);
    w.driver.data_want = HY_STREAM_WINDOW;
    side_fill(&w.driver);
    for (int i = 0; i < 50; i++)
        assert_int_equal(side_send(&w.driver, w.driver.peer), 0);
    hy_fault_arm(HY_SEAM_WIRE, 20); /* even over a broken connection */
    hy_peer_close(w.driver.peer, LONG_MS);
    assert_int_equal(hy_net_lingering(w.driver.net), 1);
    world_until(&w, hy_net_lingering(w.driver.net) == 0);
    hy_fault_arm(HY_SEAM_WIRE, 0);
    assert_int_equal(a->got, 50);
    assert_int_equal(a->data_got, HY_STREAM_WINDOW);
    assert_int_equal(w.driver.gones, 0);
    log_end();
    world_done(&w);
}

/* Both ends close at the same time: neither lingers. */
HY_TEST_WITH(test_both_ends_may_close_at_once, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];

    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && a->ups == 1);
    a->closes_on_message = 1 + LONG_MS;
    assert_int_equal(side_send(&w.driver, w.driver.peer), 0);
    hy_peer_close(w.driver.peer, LONG_MS);
    world_until(&w, hy_net_lingering(w.driver.net) + hy_net_lingering(a->net) == 0);
    assert_int_equal(a->got, 1);
    assert_int_equal(a->gones + w.driver.gones, 0);
    world_done(&w);
}

HY_TEST_WITH(test_a_peer_does_not_linger_if_the_other_end_has_closed, NULL, log_restore)
{
    struct world w;

    assert_int_equal(world_init(&w, 10 * TEST_TIMEOUT_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && w.agents[0].ups == 1);
    assert_int_equal(side_send(&w.driver, w.driver.peer), 0);
    hy_peer_close(w.driver.peer, 10 * TEST_TIMEOUT_MS);
    side_close(&w.agents[0]);
    world_until(&w, hy_net_lingering(w.driver.net) == 0);
    world_done(&w);
}

HY_TEST_WITH(test_a_peer_may_be_closed_in_its_message_callback, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && a->ups == 1);
    w.driver.closes_on_message = 1;
    for (int i = 0; i < 10; i++)
        assert_int_equal(side_send(a, a->peer), 0);
    world_until(&w, a->gones == 1);
    assert_int_equal(w.driver.got, 1); /* no event after it was closed */
    log_end();
    world_done(&w);
}

HY_TEST_WITH(test_many_agents_connect_at_once, NULL, log_restore)
{
    struct world w;
    char name[32];
    int got = 0;

    assert_int_equal(world_init(&w, LONG_MS), 0);
    w.driver.echoes = 0;
    for (int i = 0; i < AGENTS_MAX; i++) {
        snprintf(name, sizeof name, "agent-%d", i);
        assert_int_equal(world_dial(&w, name, LONG_MS), 0);
    }
    while (got < AGENTS_MAX) {
        world_turn(&w);
        got = 0;
        for (int i = 0; i < AGENTS_MAX; i++)
            got += w.agents[i].ups;
    }
    assert_int_equal(w.driver.ups, AGENTS_MAX);
    world_done(&w);
}

HY_TEST_WITH(test_listening_and_dialing_refuse_invalid_arguments, NULL, log_restore)
{
    struct hy_err err = {0};
    struct hy_peer *p;
    struct world w;
    uint16_t port;

    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(side_open(&w.agents[0], &w, LONG_MS), 0);
    w.agent_count = 1;
    assert_int_equal(hy_net_listen(w.agents[0].net, "no address", 0, world_key_of, &w, &port, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'no address' is not an address to listen on"));
    assert_int_equal(hy_net_listen(w.agents[0].net, "127.0.0.1", w.port, world_key_of, &w, &port, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, "cannot listen on 127.0.0.1 port"));
    assert_int_equal(hy_net_listen(w.agents[0].net, "127.0.0.1", 0, world_key_of, &w, &port, &err), 0);
    assert_int_equal(hy_net_dial(w.agents[0].net, "", 1, "a", w.key, &p, &err), -EINVAL);
    assert_int_equal(hy_net_dial(w.agents[0].net, "localhost", 0, "a", w.key, &p, &err), -EINVAL);
    assert_int_equal(hy_net_dial(w.agents[0].net, "localhost", 1, "", w.key, &p, &err), -EINVAL);
    world_done(&w);
}

HY_TEST_WITH(test_a_host_is_dialed_by_name, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];
    uint8_t key[HY_KEY_SIZE];

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(side_open(a, &w, LONG_MS), 0);
    w.agent_count = 1;
    assert_int_equal(hy_key_derive(w.key, "agent-1", key), 0);
    assert_int_equal(hy_net_dial(a->net, "localhost", w.port, "agent-1", key, &a->peer, NULL), 0);
    world_until(&w, a->ups == 1 && w.driver.ups == 1);
    log_end();
    world_done(&w);
}
