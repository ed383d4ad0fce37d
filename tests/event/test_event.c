/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events, compared byte by byte with output of TensorFlow's Event and TFRecordWriter
 * and TensorBoard's session_start_pb and session_end_pb; the time is always
 * 1700000000.25. tests/e2e/test_events.py uses the real readers.
 */
#include "support.h"

#include <errno.h>
#include <math.h>

#include "base/buf.h"
#include "event.pb-c.h"
#include "event/event.h"
#include "record/record.h"

#define MAX (1u << 20)
#define TIME_MS 1700000000250
#define START "_hparams_/session_start_info"

static void assert_hex(const struct hy_buf *b, const char *want)
{
    char hex[1024] = "";

    assert_true(2 * b->len < sizeof hex);
    for (size_t i = 0; i < b->len; i++)
        snprintf(hex + 2 * i, 3, "%02x", hy_buf_bytes(b)[i]);
    assert_string_equal(hex, want);
}

static void assert_version(const char *want)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, MAX);
    assert_int_equal(hy_event_version(&b, TIME_MS), 0);
    assert_hex(&b, want);
}

static void assert_start(const char *params, const char *group, const char *want)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, MAX);
    assert_int_equal(hy_event_session_start(&b, params, group, TIME_MS), 0);
    assert_hex(&b, want);
}

static void assert_end(enum hy_event_status status, const char *want)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, MAX);
    assert_int_equal(hy_event_session_end(&b, status, TIME_MS), 0);
    assert_hex(&b, want);
}

/* ---- compared with TensorFlow ---- */

HY_TEST(test_a_file_begins_like_one_of_tensorflow)
{
    assert_version("1800000000000000a37f4b220900001040fc54d9411a0d627261696e2e4576656e743a32338d2fe9");
}

HY_TEST(test_a_scalar_equals_that_of_tensorflow)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, MAX);
    assert_int_equal(hy_event_scalar(&b, "accuracy", 7, 0.91, TIME_MS), 0);
    assert_hex(&b, "1e00000000000000d9dc12320900001040fc54d94110072a110a0f0a08616363757261637915c3f5683f5013"
                   "a062");
}

HY_TEST(test_a_session_start_equals_that_of_tensorboard)
{
    assert_start("{\"lr\": 0.001}", "",
                 "5e00000000000000d8b06ebc0900001040fc54d9412a530a510a1c5f68706172616d735f2f73657373696f6e"
                 "5f73746172745f696e666f42060801120212004a290a270a0768706172616d73121c1a1a0a0f0a026c721209"
                 "11fca9f1d24d62503f2900001040fc54d941cf1982cc");
    assert_start("{\"act\": \"relu\"}", "",
                 "5c00000000000000c9cdf98f0900001040fc54d9412a510a4f0a1c5f68706172616d735f2f73657373696f6e"
                 "5f73746172745f696e666f42060801120212004a270a250a0768706172616d73121a1a180a0d0a0361637412"
                 "061a0472656c752900001040fc54d941223db392");
    assert_start("{\"bias\": false}", "",
                 "59000000000000008a1d65b60900001040fc54d9412a4e0a4c0a1c5f68706172616d735f2f73657373696f6e"
                 "5f73746172745f696e666f42060801120212004a240a220a0768706172616d7312171a150a0a0a0462696173"
                 "120220002900001040fc54d941d9e9080a");
    assert_start("{\"bias\": true}", "",
                 "59000000000000008a1d65b60900001040fc54d9412a4e0a4c0a1c5f68706172616d735f2f73657373696f6e"
                 "5f73746172745f696e666f42060801120212004a240a220a0768706172616d7312171a150a0a0a0462696173"
                 "120220012900001040fc54d94185545133");
    assert_start("{\"layers\": [64,64]}", "",
                 "6300000000000000b16b13d90900001040fc54d9412a580a560a1c5f68706172616d735f2f73657373696f6e"
                 "5f73746172745f696e666f42060801120212004a2e0a2c0a0768706172616d7312211a1f0a140a066c617965"
                 "7273120a1a085b36342c2036345d2900001040fc54d941ac79b906");
    assert_start("{\"n\": 2}", "g 1",
                 "620000000000000079fd606f0900001040fc54d9412a570a550a1c5f68706172616d735f2f73657373696f6e"
                 "5f73746172745f696e666f42060801120212004a2d0a2b0a0768706172616d7312201a1e0a0e0a016e120911"
                 "000000000000004022036720312900001040fc54d94127376278");
    assert_start("{}", "",
                 "4d000000000000003d63d4a60900001040fc54d9412a420a400a1c5f68706172616d735f2f73657373696f6e"
                 "5f73746172745f696e666f42060801120212004a180a160a0768706172616d73120b1a092900001040fc54d9"
                 "41a30e7428");
}

HY_TEST(test_a_session_end_equals_that_of_tensorboard)
{
    assert_end(HY_EVENT_UNKNOWN,
               "4b00000000000000870999960900001040fc54d9412a400a3e0a1a5f68706172616d735f2f73657373696f6e"
               "5f656e645f696e666f42060801120212004a180a160a0768706172616d73120b22091100001040fc54d9419e"
               "ca0d37");
    assert_end(HY_EVENT_SUCCESS,
               "4d000000000000003d63d4a60900001040fc54d9412a420a400a1a5f68706172616d735f2f73657373696f6e"
               "5f656e645f696e666f42060801120212004a1a0a180a0768706172616d73120d220b08011100001040fc54d9"
               "410c9c3f4e");
    assert_end(HY_EVENT_FAILURE,
               "4d000000000000003d63d4a60900001040fc54d9412a420a400a1a5f68706172616d735f2f73657373696f6e"
               "5f656e645f696e666f42060801120212004a1a0a180a0768706172616d73120d220b08021100001040fc54d9"
               "41f1eb0202");
}

/* ---- unusual input ---- */

/* The only event in the buffer; the caller frees it. */
static Hy__Tb__Event *event_in(const struct hy_buf *b)
{
    const char *why = "";
    struct hy_record r;
    Hy__Tb__Event *e;
    size_t need;

    assert_int_equal(hy_record_parse(hy_buf_bytes(b), b->len, MAX, &r, &need, &why), b->len);
    e = hy__tb__event__unpack(NULL, r.n, r.bytes);
    assert_non_null(e);
    return e;
}

static Hy__Tb__HParamsPluginData *plugin_data_in(const struct hy_buf *b)
{
    Hy__Tb__Event *e = event_in(b);
    const ProtobufCBinaryData *content = &e->summary->value[0]->metadata->plugin_data->content;
    Hy__Tb__HParamsPluginData *data = hy__tb__hparams_plugin_data__unpack(NULL, content->len, content->data);

    assert_string_equal(e->summary->value[0]->tag, START);
    assert_non_null(data);
    hy__tb__event__free_unpacked(e, NULL);
    return data;
}

static void assert_scalar(const char *tag, double value, const char *want_tag, float want)
{
    hy_cleanup_buf struct hy_buf b;
    Hy__Tb__Event *e;

    hy_buf_init(&b, MAX);
    assert_int_equal(hy_event_scalar(&b, tag, 3, value, TIME_MS), 0);
    e = event_in(&b);
    assert_int_equal(e->step, 3);
    assert_string_equal(e->summary->value[0]->tag, want_tag);
    assert_memory_equal(&e->summary->value[0]->simple_value, &want, sizeof want);
    hy__tb__event__free_unpacked(e, NULL);
}

HY_TEST(test_invalid_bytes_of_a_name_are_escaped)
{
    assert_scalar("Genauigkeit für β", 1, "Genauigkeit für β", 1);
    assert_scalar("train/loss", 1, "train/loss", 1);
    assert_scalar("caf\xe9", 1, "caf\\xe9", 1);
    assert_scalar("a\nb\tc\x01", 1, "a\\nb\\tc\\x01", 1);
    assert_scalar("\xed\xa0\x80", 1, "\\xed\\xa0\\x80", 1); /* a surrogate */
    assert_scalar("", 1, "", 1);
}

HY_TEST(test_nan_and_infinity_are_kept)
{
    assert_scalar("loss", (double)NAN, "loss", NAN);
    assert_scalar("loss", (double)INFINITY, "loss", INFINITY);
    assert_scalar("loss", -1e300, "loss", -INFINITY); /* beyond the range of a float */
    assert_scalar("loss", 0, "loss", 0);
}

HY_TEST(test_every_json_value_has_a_representation_in_tensorboard)
{
    static const char params[] =
        "{\"big\": 12345678901234567890, \"real\": 0.1, \"text\": \"caf\\u00e9\\n\", \"nul\": \"a\\u0000b\","
        " \"none\": null, \"list\": [0.1, \"x\", true], \"map\": {\"a\": 1}, \"yes\": true}";
    hy_cleanup_buf struct hy_buf b;
    Hy__Tb__HParamsPluginData *data;
    Hy__Tb__SessionStartInfo__Entry **h;

    hy_buf_init(&b, MAX);
    assert_int_equal(hy_event_session_start(&b, params, "", TIME_MS), 0);
    data = plugin_data_in(&b);
    assert_int_equal(data->session_start_info->n_hparams, 8);
    h = data->session_start_info->hparams;
    assert_string_equal(h[0]->key, "big");
    assert_true(h[0]->value->number_value == 12345678901234567890.0);
    assert_true(h[1]->value->number_value == 0.1);
    assert_string_equal(h[2]->value->string_value, "café\\n");
    assert_string_equal(h[3]->value->string_value, "a\\x00b");
    assert_string_equal(h[4]->value->string_value, "null");
    assert_string_equal(h[5]->value->string_value, "[0.1, \"x\", true]");
    assert_string_equal(h[6]->value->string_value, "{\"a\": 1.0}"); /* next to the big number all are reals */
    assert_int_equal(h[7]->value->kind_case, HY__TB__VALUE__KIND_BOOL_VALUE);
    hy__tb__hparams_plugin_data__free_unpacked(data, NULL);
}

HY_TEST(test_parameters_must_be_an_object)
{
    static const char *const bad[] = {"", "[1]", "{\"a\": }", "{\"a\": 1e999}", "{\"a\": 1} x", "{\"\xff\": 1}"};
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, MAX);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(hy_event_session_start(&b, bad[i], "", TIME_MS), -EINVAL);
    assert_int_equal(b.len, 0);
}

HY_TEST(test_a_full_buffer_holds_complete_events_only)
{
    hy_cleanup_buf struct hy_buf b;
    size_t before;

    hy_buf_init(&b, 100);
    assert_int_equal(hy_event_version(&b, TIME_MS), 0);
    before = b.len;
    assert_int_equal(hy_event_session_start(&b, "{\"lr\": 1}", "", TIME_MS), -ENOBUFS);
    assert_int_equal(hy_event_session_end(&b, HY_EVENT_SUCCESS, TIME_MS), -ENOBUFS);
    assert_int_equal(b.len, before);
    assert_int_equal(hy_event_scalar(&b, "loss", 0, 1, TIME_MS), 0);
    assert_int_equal(hy_event_scalar(&b, "loss", 1, 1, TIME_MS), -ENOBUFS);
}

/* ---- faults ---- */

static int encode_all(void *arg)
{
    static const char params[] = "{\"lr\": 0.1, \"act\": \"relu\", \"yes\": true, \"layers\": [64, {\"a\": null}]}";
    hy_cleanup_buf struct hy_buf b;
    int rc;

    (void)arg;
    hy_buf_init(&b, MAX);
    rc = hy_event_version(&b, TIME_MS);
    if (rc == 0)
        rc = hy_event_session_start(&b, params, "g", TIME_MS);
    for (int i = 0; i < 40 && rc == 0; i++)
        rc = hy_event_scalar(&b, "accuracy", i, 0.5, TIME_MS);
    if (rc == 0)
        rc = hy_event_session_end(&b, HY_EVENT_FAILURE, TIME_MS);
    assert_true(rc == 0 || rc == -ENOMEM);
    return rc;
}

HY_TEST(test_encoding_survives_faults)
{
    hy_each_fault(HY_SEAM_ALLOC, encode_all, NULL);
}
