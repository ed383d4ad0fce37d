/* SPDX-License-Identifier: Apache-2.0 */
/* Frames, and streams that survive broken connections. */
#include "base/mem.h"
#include "wire_mux.h"

/* ---- frames ------------------------------------------------------------------------------- */

static const struct hy_frame frames[] = {
    {.type = HY_FRAME_HELLO, .bytes = some_bytes, .n = 10},
    {.type = HY_FRAME_DATA, .stream = 7, .offset = 1ull << 40, .bytes = some_bytes, .n = 1},
    {.type = HY_FRAME_CREDIT, .stream = 7, .offset = 123456789012345, .limit = UINT64_MAX},
    {.type = HY_FRAME_PING},
    {.type = HY_FRAME_PONG},
    {.type = HY_FRAME_MESSAGE, .bytes = some_bytes, .n = 0},
};

HY_TEST(test_a_frame_round_trips_and_a_partial_frame_needs_more)
{
    for (size_t i = 0; i < HY_COUNT(frames); i++) {
        hy_cleanup_buf struct hy_buf b;
        const char *why = NULL;
        struct hy_frame f;

        hy_buf_init(&b, 1000);
        assert_int_equal(hy_frame_append(&b, &frames[i]), 0);
        for (size_t n = 0; n < b.len; n++)
            assert_int_equal(hy_frame_parse(hy_buf_bytes(&b), n, HY_FRAME_MAX, &f, &why), 0);
        assert_int_equal(hy_frame_parse(hy_buf_bytes(&b), b.len, HY_FRAME_MAX, &f, &why), b.len);
        assert_int_equal(f.type, frames[i].type);
        assert_int_equal(f.stream, frames[i].stream);
        assert_int_equal(f.offset, frames[i].offset);
        assert_int_equal(f.limit, frames[i].limit);
        assert_int_equal(f.n, frames[i].n);
        assert_true(f.n == 0 || memcmp(f.bytes, some_bytes, f.n) == 0);
    }
}

HY_TEST(test_invalid_frames_are_refused)
{
    static const struct {
        uint8_t bytes[32];
        size_t n;
        int rc;
    } bad[] = {
        {{1, 0, 0x10, 0}, 4, -EMSGSIZE}, /* one byte more than 1 MiB */
        {{255, 255, 255, 255, 1, 1}, 6, -EMSGSIZE},
        {{0, 0, 0, 0, 2}, 5, -EPROTO}, /* another version */
        {{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0}, 12, -EPROTO},
        {{0, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0}, 12, -EPROTO},
        {{0, 0, 0, 0, 1, 4, 1, 0, 0, 0, 0, 0}, 12, -EPROTO}, /* reserved bits */
        {{0, 0, 0, 0, 1, 4, 0, 0, 1, 0, 0, 0}, 12, -EPROTO}, /* a ping with a stream */
        {{1, 0, 0, 0, 1, 5, 0, 0, 0, 0, 0, 0, 9}, 13, -EPROTO},
        {{8, 0, 0, 0, 1, 2, 0, 0, 1}, 20, -EPROTO}, /* data without data */
        {{9, 0, 0, 0, 1, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}, 21, -EPROTO},
        {{15, 0, 0, 0, 1, 3, 0, 0, 1}, 27, -EPROTO},
        {"GET / HTTP/1.1\r\n", 16, -EMSGSIZE},
    };

    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        const char *why = NULL;
        struct hy_frame f;

        assert_int_equal(hy_frame_parse(bad[i].bytes, bad[i].n, HY_FRAME_MAX, &f, &why), bad[i].rc);
        assert_non_null(why);
    }
}

/* ---- streams -------------------------------------------------------------------------------- */

static void random_step(struct hy_rng *r, struct end *e, struct end *other)
{
    const char *why = "";
    uint32_t stream = 1 + (uint32_t)hy_rng_below(r, STREAMS);

    switch (hy_rng_below(r, 6)) {
    case 0:
        assert_int_equal(send_message(e), 0);
        break;
    case 1:
    case 2:
        assert_int_equal(send_data(e, stream, 1 + hy_rng_below(r, 4096)), 0);
        break;
    case 3:
        seal_and_release(e->mux);
        assert_in_range(hy_mux_output(e->mux, &e->wire, 1 + hy_rng_below(r, 50000)), 0, 1);
        break;
    case 4:
        if (deliver(e, other, hy_rng_below(r, 100000), &why) < 0)
            fail_msg("%s", why);
        break;
    case 5:
        hy_mux_consumed(e->mux, stream, e->data_owed[stream]);
        e->data_owed[stream] = 0;
        break;
    }
}

static void consume_all(struct end *e)
{
    e->keeps_credit = 0;
    for (uint32_t s = 1; s <= STREAMS; s++) {
        hy_mux_consumed(e->mux, s, e->data_owed[s]);
        e->data_owed[s] = 0;
    }
}

HY_TEST(test_everything_arrives_once_and_in_order_over_broken_connections)
{
    for (uint64_t seed = 1; seed <= 40; seed++) {
        struct hy_rng r;
        struct end a, b;

        hy_rng_seed(&r, seed, 0);
        assert_int_equal(end_init(&a) | end_init(&b), 0);
        a.keeps_credit = b.keeps_credit = 1;
        assert_int_equal(reconnect(&a, &b), 0);
        for (int step = 0; step < 3000; step++) {
            if (hy_rng_below(&r, 60) == 0) {
                const char *why = "";

                if (hy_rng_below(&r, 3) == 0) { /* a connection that breaks during the exchange of Hellos */
                    hy_buf_clear(&a.wire);
                    hy_buf_clear(&b.wire);
                    assert_int_equal(hello(&a, hy_rng_below(&r, 2) ? &b : NULL, &why), 0);
                }
                assert_int_equal(reconnect(&a, &b), 0);
            }
            if (hy_rng_below(&r, 2))
                random_step(&r, &a, &b);
            else
                random_step(&r, &b, &a);
        }
        consume_all(&a);
        consume_all(&b);
        assert_int_equal(settle(&a, &b), 0);
        assert_same(&a, &b);
        assert_same(&b, &a);
        assert_int_equal(hy_mux_unacked_all(a.mux) + hy_mux_unacked_all(b.mux), 0);
        end_done(&a);
        end_done(&b);
    }
}

HY_TEST(test_a_late_hello_of_an_older_connection_is_harmless)
{
    struct hy_mark old = {0, 0, UINT64_MAX};
    const char *why = "";
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    assert_int_equal(send_message(&a), 0);
    assert_int_equal(send_message(&a), 0);
    seal_and_release(a.mux);
    assert_in_range(hy_mux_output(a.mux, &a.wire, 1000), 0, 1);
    assert_int_equal(deliver(&a, &b, SIZE_MAX, &why), 0);
    assert_int_equal(hy_mux_resume(a.mux, &old, 1, &why), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    assert_int_equal(settle(&a, &b), 0);
    assert_same(&a, &b);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_a_sender_stops_at_its_credit_and_continues_with_more)
{
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    b.keeps_credit = 1;
    while (hy_mux_room(a.mux, 1) > 0) {
        assert_int_equal(send_data(&a, 1, 4096), 0);
        assert_int_equal(settle(&a, &b), 0);
    }
    assert_int_equal(a.data_sent[1], HY_STREAM_WINDOW);
    assert_int_equal(b.data_got[1], HY_STREAM_WINDOW);
    assert_int_equal(hy_mux_unacked(a.mux, 1), 0);
    assert_int_equal(a.rooms, 0);
    assert_int_equal(hy_mux_room(a.mux, 2), HY_STREAM_WINDOW); /* each stream has separate credit */
    hy_mux_consumed(b.mux, 1, 100000);
    assert_int_equal(hy_mux_need(b.mux), HY_MUX_SEND);
    assert_int_equal(settle(&a, &b), 0);
    assert_int_equal(a.rooms, 1);
    assert_int_equal(hy_mux_room(a.mux, 1), 100000);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_control_messages_overtake_queued_data)
{
    const char *why = "";
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    b.keeps_credit = 1;
    for (uint32_t s = 1; s <= STREAMS; s++)
        while (hy_mux_room(a.mux, s) > 0)
            assert_int_equal(send_data(&a, s, 4096), 0);
    seal_and_release(a.mux);
    assert_int_equal(hy_mux_output(a.mux, &a.wire, 100000), 1);
    hy_buf_clear(&b.wire);
    assert_int_equal(deliver(&a, &b, SIZE_MAX, &why), 0);
    assert_int_equal(send_message(&a), 0);
    seal_and_release(a.mux);
    assert_int_equal(hy_mux_output(a.mux, &a.wire, 1), 1); /* one frame */
    assert_int_equal(deliver(&a, &b, SIZE_MAX, &why), 0);
    assert_int_equal(b.messages_got, 1);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_data_streams_are_served_round_robin)
{
    const char *why = "";
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    for (uint32_t s = 1; s <= 3; s++)
        while (hy_mux_room(a.mux, s) > 0)
            assert_int_equal(send_data(&a, s, 4096), 0);
    seal_and_release(a.mux);
    for (int i = 0; i < 6; i++)
        assert_int_equal(hy_mux_output(a.mux, &a.wire, 1), 1);
    assert_int_equal(deliver(&a, &b, SIZE_MAX, &why), 0);
    for (uint32_t s = 1; s <= 3; s++)
        assert_int_equal(b.data_got[s], 2 * 16384);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_nothing_is_sent_before_its_release)
{
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    assert_int_equal(send_message(&a), 0);
    assert_int_equal(send_data(&a, 1, 100), 0);
    assert_int_equal(hy_mux_need(a.mux), HY_MUX_NOTHING);
    assert_int_equal(hy_mux_output(a.mux, &a.wire, 1000), 0);
    assert_int_equal(a.wire.len, 0);
    seal_and_release(a.mux);
    assert_int_equal(send_message(&a), 0);
    assert_int_equal(reconnect(&a, &b), 0); /* a new connection releases nothing either */
    assert_in_range(hy_mux_output(a.mux, &a.wire, 1000), 0, 1);
    assert_int_equal(deliver(&a, &b, SIZE_MAX, &(const char *){""}), 0);
    assert_int_equal(b.messages_got, 1);
    assert_int_equal(b.data_got[1], 100);
    assert_int_equal(settle(&a, &b), 0);
    assert_int_equal(b.messages_got, 2);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_a_release_stops_at_the_seal)
{
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    assert_int_equal(send_message(&a), 0);
    assert_int_equal(send_data(&a, 1, 100), 0);
    hy_mux_seal(a.mux);
    assert_int_equal(send_message(&a), 0); /* belongs to the next turn */
    assert_int_equal(send_data(&a, 1, 50), 0);
    assert_int_equal(send_data(&a, 2, 7), 0);
    hy_mux_release(a.mux);
    assert_in_range(hy_mux_output(a.mux, &a.wire, 1000), 0, 1);
    assert_int_equal(deliver(&a, &b, SIZE_MAX, &(const char *){""}), 0);
    assert_int_equal(b.messages_got, 1);
    assert_int_equal(b.data_got[1], 100);
    assert_int_equal(b.data_got[2], 0);
    hy_mux_release(a.mux); /* nothing new was sealed */
    assert_int_equal(hy_mux_need(a.mux), HY_MUX_NOTHING);
    assert_int_equal(settle(&a, &b), 0);
    assert_int_equal(b.messages_got, 2);
    assert_int_equal(b.data_got[1], 150);
    assert_int_equal(b.data_got[2], 7);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_discarded_data_is_never_sent)
{
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    assert_int_equal(send_message(&a), 0);
    seal_and_release(a.mux);
    assert_int_equal(send_message(&a), 0);
    assert_int_equal(send_data(&a, 1, 100), 0);
    hy_mux_seal(a.mux);
    hy_mux_discard(a.mux);
    a.messages_sent--; /* the next one replaces the dropped one */
    a.data_sent[1] = 0;
    assert_int_equal(settle(&a, &b), 0);
    assert_int_equal(b.messages_got, 1);
    assert_int_equal(b.data_got[1], 0);
    assert_int_equal(hy_mux_unacked_all(a.mux), 0);
    assert_int_equal(send_message(&a), 0);
    assert_int_equal(send_data(&a, 1, 30), 0);
    assert_int_equal(settle(&a, &b), 0);
    assert_int_equal(b.messages_got, 2);
    assert_int_equal(b.data_got[1], 30);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_acknowledgements_are_delayed)
{
    const char *why = "";
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    assert_int_equal(send_message(&a), 0);
    seal_and_release(a.mux);
    assert_in_range(hy_mux_output(a.mux, &a.wire, 1), 0, 1);
    assert_int_equal(deliver(&a, &b, SIZE_MAX, &why), 0);
    assert_int_equal(hy_mux_need(b.mux), HY_MUX_ACKS);
    assert_int_equal(send_message(&b), 0);
    seal_and_release(b.mux);
    assert_int_equal(hy_mux_need(b.mux), HY_MUX_SEND);
    assert_in_range(hy_mux_output(b.mux, &b.wire, 1000), 0, 1);
    assert_int_equal(deliver(&b, &a, SIZE_MAX, &why), 0);
    assert_int_equal(hy_mux_unacked_all(a.mux), 0);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_64_mib_are_sent_with_one_window_of_memory)
{
    const uint64_t total = 64ull << 20;
    size_t most = 0;
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    while (a.data_sent[1] < total) {
        while (hy_mux_room(a.mux, 1) > 0 && a.data_sent[1] < total)
            assert_int_equal(send_data(&a, 1, 4096), 0);
        if (most < hy_mux_unacked_all(a.mux))
            most = hy_mux_unacked_all(a.mux);
        assert_int_equal(settle(&a, &b), 0);
    }
    assert_int_equal(b.data_got[1], total);
    assert_int_equal(most, HY_STREAM_WINDOW);
    end_done(&a);
    end_done(&b);
}

HY_TEST(test_unacknowledged_control_messages_are_bounded)
{
    size_t queued = 0;
    uint8_t *at;
    struct end a;
    int rc;

    assert_int_equal(end_init(&a), 0);
    while ((rc = hy_mux_message(a.mux, 1000000, &at)) == 0) {
        memset(at, 0, 1000000);
        queued += 1000004;
    }
    assert_int_equal(rc, -ENOBUFS);
    assert_true(queued <= HY_CONTROL_QUEUE && queued + 1000004 > HY_CONTROL_QUEUE);
    assert_int_equal(hy_mux_message(a.mux, SIZE_MAX, &at), -ENOBUFS);
    end_done(&a);
}

HY_TEST(test_a_forgotten_stream_is_freed_at_its_sender_and_never_reopened)
{
    const char *why = "";
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    b.keeps_credit = 1;
    while (hy_mux_room(a.mux, 1) > 0)
        assert_int_equal(send_data(&a, 1, 4096), 0);
    seal_and_release(a.mux);
    assert_int_equal(hy_mux_output(a.mux, &a.wire, 1), 1);
    assert_int_equal(deliver(&a, &b, SIZE_MAX, &why), 0);
    hy_mux_forget(b.mux, 1);
    b.data_owed[1] = 0;
    assert_int_equal(settle(&a, &b), 0);
    assert_int_equal(b.data_got[1], 16384);
    assert_int_equal(hy_mux_unacked(a.mux, 1), 0);
    assert_int_equal(a.rooms, 1);
    assert_int_equal(hy_mux_room(a.mux, 1), HY_STREAM_WINDOW);
    assert_int_equal(send_data(&a, 1, 4096), 0); /* discarded */
    assert_int_equal(settle(&a, &b), 0);
    assert_int_equal(hy_mux_unacked(a.mux, 1), 0);
    assert_int_equal(b.data_got[1], 16384);
    end_done(&a);
    end_done(&b);
}

/* Many streams, which only the receiver forgets. */
HY_TEST(test_finished_streams_use_no_memory)
{
    struct end a, b;
    uint8_t byte = 1;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    b.forgets = 1;
    for (uint32_t id = 1; id <= 20000; id++) {
        assert_int_equal(hy_mux_write(a.mux, id, &byte, 1), 0);
        if (id % 100 == 0)
            assert_int_equal(settle(&a, &b), 0);
    }
    assert_int_equal(a.rooms, 20000);
    assert_int_equal(hy_mux_streams(a.mux) + hy_mux_streams(b.mux), 0);
    end_done(&a);
    end_done(&b);
}

/* The CREDIT that reports a forgotten stream is lost with the connection: once with
 * some of the stream acknowledged, once with nothing. */
HY_TEST(test_a_stream_forgotten_on_a_broken_connection_is_freed_at_its_sender)
{
    const char *why = "";

    for (int acknowledged = 0; acknowledged < 2; acknowledged++) {
        struct end a, b;

        assert_int_equal(end_init(&a) | end_init(&b), 0);
        assert_int_equal(reconnect(&a, &b), 0);
        b.keeps_credit = 1;
        while (hy_mux_room(a.mux, 1) > 0)
            assert_int_equal(send_data(&a, 1, 4096), 0);
        seal_and_release(a.mux);
        while (hy_mux_output(a.mux, &a.wire, 100000) > 0)
            ;
        assert_int_equal(deliver(&a, &b, SIZE_MAX, &why), 0);
        if (acknowledged)
            assert_int_equal(settle(&a, &b), 0);
        hy_mux_forget(b.mux, 1);
        assert_int_equal(hy_mux_output(b.mux, &b.wire, 1000), 0);
        assert_int_equal(reconnect(&a, &b), 0);
        assert_int_equal(settle(&a, &b), 0);
        assert_int_equal(b.data_got[1], HY_STREAM_WINDOW);
        assert_int_equal(hy_mux_unacked(a.mux, 1), 0);
        assert_int_equal(hy_mux_room(a.mux, 1), HY_STREAM_WINDOW);
        end_done(&a);
        end_done(&b);
    }
}

static int raw_data(struct end *to, uint32_t stream, uint64_t offset, const void *bytes, size_t n)
{
    struct hy_frame f = {.type = HY_FRAME_DATA, .stream = stream, .offset = offset, .bytes = bytes, .n = n};

    return hy_mux_input(to->mux, &f, &(const char *){""});
}

static int raw_credit(struct end *to, uint32_t stream, uint64_t offset, uint64_t limit)
{
    struct hy_frame f = {.type = HY_FRAME_CREDIT, .stream = stream, .offset = offset, .limit = limit};

    return hy_mux_input(to->mux, &f, &(const char *){""});
}

/* Numbers in any order, some never used, some forgotten before their first frame:
 * each opens once. */
HY_TEST(test_stream_numbers_are_used_once_in_any_order)
{
    enum { COUNT = 2000 };
    static uint8_t opened[COUNT + 1];
    struct hy_rng r;
    struct end b;

    memset(opened, 0, sizeof opened);
    hy_rng_seed(&r, 5, 0);
    assert_int_equal(end_init(&b), 0);
    for (int i = 0; i < 4 * COUNT; i++) {
        uint32_t id = 1 + (uint32_t)hy_rng_below(&r, COUNT);
        uint8_t byte = data_byte(1, 0);

        if (hy_rng_below(&r, 10) == 0) {
            hy_mux_forget(b.mux, id);
            opened[id] = 1;
            continue;
        }
        b.forgets = 1;
        b.data_got[0] = 0;
        if (!opened[id])
            assert_int_equal(raw_data(&b, id, 1, &byte, 1), -EPROTO); /* the first offset must be 0 */
        assert_int_equal(raw_data(&b, id, 0, &byte, 1), 0);
        if (opened[id]) /* a late frame, with any offset, opens nothing */
            assert_int_equal(raw_data(&b, id, 77, &byte, 1), 0);
        opened[id] = 1;
        hy_buf_clear(&b.wire);
        assert_int_equal(hy_mux_output(b.mux, &b.wire, 100), 0);
        assert_int_equal(b.wire.len, 28); /* a CREDIT: the stream is forgotten */
    }
    end_done(&b);
}

/* A peer that leaves a gap after every number uses bounded memory: the oldest gaps are closed. */
HY_TEST(test_gaps_between_stream_numbers_are_bounded)
{
    const uint32_t last = 2 * HY_IDSET_RUNS_MAX + 1001;
    uint8_t byte = 0;
    struct end b;

    assert_int_equal(end_init(&b), 0);
    b.forgets = 1;
    for (uint32_t id = 1; id <= last; id += 2) {
        assert_int_equal(raw_data(&b, id, 0, &byte, 1), 0);
        hy_buf_clear(&b.wire);
        assert_int_equal(hy_mux_output(b.mux, &b.wire, 100), 0);
    }
    assert_int_equal(raw_data(&b, 2, 1, &byte, 1), 0);              /* treated as late */
    assert_int_equal(raw_data(&b, last - 1, 1, &byte, 1), -EPROTO); /* new, with a nonzero offset */
    assert_int_equal(raw_data(&b, last - 1, 0, &byte, 1), 0);
    end_done(&b);
}

HY_TEST(test_a_hostile_peer_is_refused)
{
    static const uint8_t too_long[] = {0, 0, 0, 1}; /* more than 16 MiB */
    static uint8_t bytes[HY_STREAM_WINDOW + 1];
    struct hy_mark mark = {0, 5, 0};
    struct hy_frame ping = {.type = HY_FRAME_PING};
    const char *why = "";
    struct end b;

    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = data_byte(1, i);
    assert_int_equal(end_init(&b), 0);
    b.keeps_credit = 1;
    assert_int_equal(raw_data(&b, 1, 1, bytes, 1), -EPROTO);            /* a nonzero first offset */
    assert_int_equal(raw_data(&b, 1, 0, bytes, sizeof bytes), -EPROTO); /* over its credit */
    assert_int_equal(raw_data(&b, 1, 0, bytes, 1000), 0);
    assert_int_equal(raw_data(&b, 1, 1001, bytes, 1), -EPROTO);   /* a gap */
    assert_int_equal(raw_data(&b, 1, 500, bytes + 500, 1000), 0); /* half of it is a repetition */
    assert_int_equal(b.data_got[1], 1500);
    assert_int_equal(raw_data(&b, 1, 0, bytes, 1500), 0); /* all of it is a repetition */
    assert_int_equal(raw_data(&b, 1, 100, bytes + 100, 10), 0);
    assert_int_equal(b.data_got[1], 1500);
    assert_int_equal(raw_data(&b, 0, 0, too_long, 4), -EPROTO);
    assert_int_equal(raw_credit(&b, 0, 1, 0), -EPROTO); /* for data that was not sent */
    assert_int_equal(raw_credit(&b, 99, 1, 0), 0);      /* for an unknown stream */
    assert_int_equal(send_data(&b, 3, 100), 0);
    assert_int_equal(raw_credit(&b, 3, 1, 1), -EPROTO);
    assert_int_equal(hy_mux_resume(b.mux, &mark, 1, &why), -EPROTO);
    assert_int_equal(hy_mux_input(b.mux, &ping, &why), -EPROTO);
    assert_int_equal(raw_credit(&b, 3, 0, UINT64_MAX), 0); /* at most one window is buffered */
    assert_int_equal(hy_mux_room(b.mux, 3), HY_STREAM_WINDOW - 100);
    end_done(&b);
}

HY_TEST(test_the_number_of_open_streams_is_bounded)
{
    struct end b;
    uint8_t byte = 0;
    uint32_t id;
    int rc = 0;

    assert_int_equal(end_init(&b), 0);
    b.forgets = 1; /* forgotten streams count until the sender is notified */
    for (id = 1; rc == 0 && id < 10000; id++)
        rc = raw_data(&b, id, 0, &byte, 1);
    assert_int_equal(rc, -EPROTO);
    assert_int_equal(id, HY_RECV_STREAMS_MAX + 2);
    assert_int_equal(hy_mux_output(b.mux, &b.wire, 100), 0);
    assert_int_equal(raw_data(&b, 20000, 0, &byte, 1), 0);
    end_done(&b);
}

/* After an error the connection breaks, and the next one continues. */
static int survive_faults(void *arg)
{
    struct end a, b;
    int rc = end_init(&a);

    (void)arg;
    if (rc == 0)
        rc = end_init(&b) < 0 ? (end_done(&a), -ENOMEM) : 0;
    if (rc < 0)
        return rc;
    while (reconnect(&a, &b) < 0)
        ;
    for (int i = 0; i < 60; i++) {
        while (send_message(&a) < 0 || send_message(&b) < 0)
            ;
        while (send_data(&a, 1 + (uint32_t)i % STREAMS, 4096) < 0)
            ;
        while (settle(&a, &b) < 0)
            while (reconnect(&a, &b) < 0)
                ;
    }
    assert_same(&a, &b);
    assert_int_equal(a.messages_got, 60);
    end_done(&a);
    end_done(&b);
    return 0;
}

HY_TEST(test_streams_survive_failed_allocations)
{
    hy_each_fault(HY_SEAM_ALLOC, survive_faults, NULL);
}

HY_TEST(test_streams_survive_a_lost_frame)
{
    hy_each_fault(HY_SEAM_WIRE, survive_faults, NULL);
}

HY_TEST(test_a_refused_message_is_delivered_again)
{
    struct end a, b;

    assert_int_equal(end_init(&a) | end_init(&b), 0);
    assert_int_equal(reconnect(&a, &b), 0);
    assert_int_equal(send_message(&a), 0);
    b.refuse = -ENOMEM;
    assert_int_equal(settle(&a, &b), -ENOMEM);
    assert_int_equal(b.messages_got, 0);
    assert_int_equal(reconnect(&a, &b), 0);
    assert_int_equal(b.messages_got, 1);
    end_done(&a);
    end_done(&b);
}
