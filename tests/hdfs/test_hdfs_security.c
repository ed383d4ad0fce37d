/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Security of the HDFS client without a cluster: hashes and ciphers with the test
 * vectors of their standards, tokens with files written by Hadoop. Real clusters are
 * tested in e2e/test_hdfs_security.py, sessions in test_hdfs_sessions.c.
 */
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "hdfs/security/aes.h"
#include "hdfs/security/sasl_digest_md5.h"
#include "hdfs/security/md5.h"
#include "hdfs/rpc/rpc_internal.h"
#include "hdfs/security/sasl.h"
#include "hdfs/security/sasl_mechanism.h"
#include "hdfs/sock.h"
#include "hdfs/security/tokens.h"

static size_t from_hex(const char *hex, uint8_t *out)
{
    const size_t n = strlen(hex) / 2;

    for (size_t i = 0; i < n; i++) {
        unsigned byte;

        assert_int_equal(sscanf(hex + 2 * i, "%2x", &byte), 1);
        out[i] = (uint8_t)byte;
    }
    return n;
}

static void assert_hex(const void *bytes, const char *hex)
{
    uint8_t expected[512];
    const size_t n = from_hex(hex, expected);

    assert_memory_equal(bytes, expected, n);
}

/* ---- hashes and ciphers ---- */

HY_TEST(test_md5_matches_rfc_1321)
{
    static const char *const examples[][2] = {
        {"", "d41d8cd98f00b204e9800998ecf8427e"},
        {"a", "0cc175b9c0f1b6a831c399e269772661"},
        {"abc", "900150983cd24fb0d6963f7d28e17f72"},
        {"message digest", "f96b697d7cb7938d525a2f31aaf161d0"},
        {"abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"},
        {"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"},
        {"12345678901234567890123456789012345678901234567890123456789012345678901234567890",
         "57edf4a22be3c955ac49da2e2107b67a"},
    };

    for (size_t i = 0; i < HY_COUNT(examples); i++) {
        const char *text = examples[i][0];

        for (size_t cut = 0; cut <= strlen(text); cut++) { /* split at every position */
            uint8_t sum[HY_HDFS_MD5_SIZE];
            struct hy_hdfs_md5 m;

            hy_hdfs_md5_init(&m);
            hy_hdfs_md5_add(&m, text, cut);
            hy_hdfs_md5_add(&m, text + cut, strlen(text) - cut);
            hy_hdfs_md5_end(&m, sum);
            assert_hex(sum, examples[i][1]);
        }
    }
}

static void assert_hmac(const void *key, size_t key_n, const void *text, size_t n, const char *hex)
{
    uint8_t sum[HY_HDFS_MD5_SIZE];
    struct hy_hdfs_hmac_md5 h;

    hy_hdfs_hmac_md5_init(&h, key, key_n);
    hy_hdfs_hmac_md5_add(&h, text, n);
    hy_hdfs_hmac_md5_end(&h, sum);
    assert_hex(sum, hex);
}

HY_TEST(test_hmac_md5_matches_rfc_2202)
{
    uint8_t key[80], text[50];

    assert_hmac("Jefe", 4, "what do ya want for nothing?", 28, "750c783e6ab0b503eaa86e310a5db738");
    memset(key, 0x0b, 16);
    assert_hmac(key, 16, "Hi There", 8, "9294727a3638bb1c13f48ef8158bfc9d");
    memset(key, 0xaa, 80);
    memset(text, 0xdd, 50);
    assert_hmac(key, 16, text, 50, "56be34521d144c88dbb8c733f0e8b3f6");
    assert_hmac(key, 80, "Test Using Larger Than Block-Size Key - Hash Key First", 54,
                "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd");
}

HY_TEST(test_rc4_matches_rfc_6229)
{
    uint8_t key[16], stream[4112] = {0};
    struct hy_hdfs_rc4 r;

    for (uint8_t i = 0; i < sizeof(key); i++)
        key[i] = i + 1;
    hy_hdfs_rc4_init(&r, key, sizeof(key));
    hy_hdfs_rc4_apply(&r, stream, 7); /* continues */
    hy_hdfs_rc4_apply(&r, stream + 7, sizeof(stream) - 7);
    assert_hex(stream, "9ac7cc9a609d1ef7b2932899cde41b97");
    assert_hex(stream + 4096, "a36a4c301ae8ac13610ccbc12256cacc");
}

HY_TEST(test_aes_matches_sp_800_38a)
{
    static const char plain[] = "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51";
    uint8_t key[16], iv[HY_HDFS_AES_IV_SIZE], bytes[32];
    struct hy_err err = {0};
    struct hy_hdfs_aes *a;

    from_hex("2b7e151628aed2a6abf7158809cf4f3c", key);
    from_hex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff", iv);
    from_hex(plain, bytes);
    a = hy_hdfs_aes_new(key, sizeof(key), iv, &err);
    assert_non_null(a);
    assert_int_equal(hy_hdfs_aes_apply(a, bytes, bytes, 5), 0);
    assert_int_equal(hy_hdfs_aes_apply(a, bytes + 5, bytes + 5, 27), 0);
    assert_hex(bytes, "874d6191b620e3261bef6864990db6ce9806f66b7970fdff8617187bb9fffdff");
    hy_hdfs_aes_free(a);
    assert_null(hy_hdfs_aes_new(key, 15, iv, &err));
    assert_int_equal(err.code, -EINVAL);
}

HY_TEST(test_base64_matches_rfc_4648)
{
    static const char *const examples[][2] = {
        {"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="}, {"\xff\xfe\xfd", "//79"},
    };

    for (size_t i = 0; i < HY_COUNT(examples); i++) {
        char *text = hy_hdfs_base64((const uint8_t *)examples[i][0], strlen(examples[i][0]));

        assert_string_equal(text, examples[i][1]);
        free(text);
    }
}

/* ---- quality of protection ---- */

HY_TEST(test_protection_settings_are_parsed)
{
    struct hy_err err = {0};
    struct hy_hdfs_qops q;

    assert_int_equal(hy_hdfs_qops_parse(NULL, "k", &q, &err), 0);
    assert_int_equal(hy_hdfs_qops_choose(&q, HY_HDFS_QOP_AUTH | HY_HDFS_QOP_PRIVACY), HY_HDFS_QOP_AUTH);
    assert_int_equal(hy_hdfs_qops_parse(" Privacy, integrity,privacy", "k", &q, &err), 0);
    assert_int_equal(q.count, 2);
    assert_int_equal(hy_hdfs_qops_choose(&q, HY_HDFS_QOP_AUTH | HY_HDFS_QOP_INTEGRITY | HY_HDFS_QOP_PRIVACY),
                     HY_HDFS_QOP_PRIVACY);
    assert_int_equal(hy_hdfs_qops_choose(&q, HY_HDFS_QOP_AUTH | HY_HDFS_QOP_INTEGRITY), HY_HDFS_QOP_INTEGRITY);
    assert_int_equal(hy_hdfs_qops_choose(&q, HY_HDFS_QOP_AUTH), 0);
    assert_int_equal(hy_hdfs_qops_parse("privacy,secrecy", "hadoop.rpc.protection", &q, &err), -EINVAL);
    assert_non_null(strstr(err.text, "hadoop.rpc.protection"));
    assert_int_equal(hy_hdfs_qops_parse(" , ", "k", &q, &err), -EINVAL);
}

/* ---- DIGEST-MD5 ---- */

static struct hy_hdfs_qops qops_of(const char *text)
{
    struct hy_err err = {0};
    struct hy_hdfs_qops q;

    assert_int_equal(hy_hdfs_qops_parse(text, "test", &q, &err), 0);
    return q;
}

static int step(struct hy_hdfs_sasl *s, const char *challenge, char *response, size_t size, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, 4096);
    rc = hy_hdfs_sasl_step(s, (const uint8_t *)challenge, strlen(challenge), &b, err);
    if (response)
        snprintf(response, size, "%s", b.len ? hy_buf_cstr(&b) : "");
    return rc;
}

HY_TEST(test_digest_matches_rfc_2831)
{
    const struct hy_hdfs_digest_login login = {.user = "chris",
                                               .password = "secret",
                                               .protocol = "imap",
                                               .server = "elwood.innosoft.com",
                                               .nonce = "OA6MHXh6VqTrRk"};
    const struct hy_hdfs_qops qops = qops_of("authentication");
    struct hy_hdfs_sasl *s = hy_hdfs_sasl_digest_new(&login, &qops);
    struct hy_err err = {0};
    char response[1000];

    assert_int_equal(step(s,
                          "realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\",qop=\"auth\",algorithm=md5-sess,"
                          "charset=utf-8",
                          response, sizeof(response), &err),
                     1);
    assert_non_null(strstr(response, "response=d388dad90d4bbd760a152321f2143af7"));
    assert_non_null(strstr(response, "username=\"chris\",realm=\"elwood.innosoft.com\",nonce=\"OA6MG9tEQGm2hh\""));
    assert_non_null(strstr(response, "digest-uri=\"imap/elwood.innosoft.com\""));
    assert_non_null(strstr(response, "qop=auth,"));
    assert_false(hy_hdfs_sasl_is_done(s));
    assert_int_equal(step(s, "rspauth=ea40f60335c427b5527b84dbabcdfffd", NULL, 0, &err), 0);
    assert_true(hy_hdfs_sasl_is_done(s));
    assert_int_equal(hy_hdfs_sasl_qop(s), HY_HDFS_QOP_AUTH);
    assert_int_equal(step(s, "rspauth=ea40f60335c427b5527b84dbabcdfffd", NULL, 0, &err), -EPROTO);
    hy_hdfs_sasl_free(s);
}

/* An authenticated session, with the nonces for which another implementation made the messages below. */
static struct hy_hdfs_sasl *signed_on(const char *protection, const char *rspauth)
{
    const struct hy_hdfs_digest_login login = {
        .user = "dXNlcg==", .password = "cGFzcw==", .protocol = "hdfs", .server = "0", .nonce = "c0nce"};
    const struct hy_hdfs_qops qops = qops_of(protection);
    struct hy_hdfs_sasl *s = hy_hdfs_sasl_digest_new(&login, &qops);
    struct hy_err err = {0};
    char last[64];

    assert_int_equal(step(s,
                          "realm=\"0\",nonce=\"n0nce\",qop=\"auth,auth-int,auth-conf\",cipher=\"3des,rc4\","
                          "algorithm=md5-sess,maxbuf=65536",
                          NULL, 0, &err),
                     1);
    snprintf(last, sizeof(last), "rspauth=%s", rspauth);
    assert_int_equal(step(s, last, NULL, 0, &err), 0);
    assert_true(hy_hdfs_sasl_is_done(s));
    return s;
}

struct pieces {
    const char *protection, *rspauth, *out[3], *in[3];
};

static const struct pieces pieces[] = {
    {"integrity",
     "7e93d83568a9f540ff5db537557621f6",
     {"6669727374bfe63666187301f3030b000100000000", "daeac7a4ec78edcadfdc000100000001",
      "746865207468697264207069656365466718bcc8bd153e0118000100000002"},
     {"66697273740a8a7a28abcf8759468c000100000000", "be95435707b6fbe53f35000100000001",
      "74686520746869726420706965636594694a8802a62c55d52f000100000002"}},
    {"privacy",
     "80693e0c8da751cbdfa1eff0e98f6687",
     {"ab3fbfe31433ce299bc6da700aa472000100000000", "293ff3030a38e47d8fa5000100000001",
      "2ab11df56f8ee15b19aa9d03ce2f6d4bec4f228a0707a01457000100000002"},
     {"71b5aece2807de51d9a180e1cfcc78000100000000", "5c580754b84c417bb20b000100000001",
      "6653156b3b68768be930ba7a7868f74cbddaf7cab937cac112000100000002"}},
};
static const char *const plain_pieces[] = {"first", "", "the third piece"};

HY_TEST(test_digest_wraps_and_unwraps_like_other_implementations)
{
    for (size_t i = 0; i < HY_COUNT(pieces); i++) {
        struct hy_hdfs_sasl *s = signed_on(pieces[i].protection, pieces[i].rspauth);

        assert_in_range(hy_hdfs_sasl_wrap_max(s), 65500, 65520);
        for (size_t k = 0; k < 3; k++) {
            const char *plain = plain_pieces[k];
            hy_cleanup_buf struct hy_buf b;
            uint8_t token[100];
            const size_t n = from_hex(pieces[i].in[k], token);

            hy_buf_init(&b, 4096);
            assert_int_equal(hy_hdfs_sasl_wrap(s, plain, strlen(plain), &b), 0);
            assert_int_equal(b.len, strlen(pieces[i].out[k]) / 2);
            assert_hex(hy_buf_bytes(&b), pieces[i].out[k]);
            assert_int_equal(hy_hdfs_sasl_unwrap(s, token, n), strlen(plain));
            assert_memory_equal(token, plain, strlen(plain));
        }
        hy_hdfs_sasl_free(s);
    }
}

HY_TEST(test_forged_messages_are_rejected)
{
    uint8_t token[100];

    for (size_t i = 0; i < HY_COUNT(pieces); i++) {
        const struct pieces *p = &pieces[i];
        const size_t n = from_hex(p->in[0], token);

        for (size_t at = 0; at <= n; at++) { /* each byte changed, and the last one missing */
            struct hy_hdfs_sasl *s = signed_on(p->protection, p->rspauth);

            from_hex(p->in[0], token);
            if (at < n)
                token[at] ^= 1;
            assert_int_equal(hy_hdfs_sasl_unwrap(s, token, at < n ? n : n - 1), -EBADMSG);
            hy_hdfs_sasl_free(s);
        }
        struct hy_hdfs_sasl *s = signed_on(p->protection, p->rspauth);
        assert_int_equal(hy_hdfs_sasl_unwrap(s, token, from_hex(p->in[1], token)), -EBADMSG); /* out of order */
        hy_hdfs_sasl_free(s);
        s = signed_on(p->protection, p->rspauth);
        assert_int_equal(hy_hdfs_sasl_unwrap(s, token, from_hex(p->in[0], token)), 5);
        assert_int_equal(hy_hdfs_sasl_unwrap(s, token, from_hex(p->in[0], token)), -EBADMSG); /* replayed */
        hy_hdfs_sasl_free(s);
    }
}

HY_TEST(test_invalid_challenges_are_rejected)
{
    static const struct {
        const char *challenge;
        int rc;
        const char *says;
    } cases[] = {
        {"", -EPROTO, "nonce"},
        {"realm=\"x\",algorithm=md5-sess", -EPROTO, "nonce"},
        {"nonce=\"a\",nonce=\"b\",algorithm=md5-sess", -EPROTO, "invalid challenge"},
        {"nonce=\"a\",algorithm=md5", -EPROTO, "md5-sess"},
        {"nonce=\"a\",algorithm=md5-sess,qop=\"auth\"", -EACCES, "its protection is authentication, ours is privacy"},
        {"nonce=\"a\",algorithm=md5-sess,qop=\"auth-conf\",cipher=\"3des,des\"", -ENOTSUP, "rc4"},
        {"nonce=\"a\",algorithm=md5-sess,qop=\"auth-conf\",cipher=\"rc4\",maxbuf=20", -EPROTO, "20 bytes"},
        {"nonce=\"a\",algorithm=md5-sess,maxbuf=99999999", -EPROTO, "invalid challenge"},
        {"nonce=\"a", -EPROTO, "invalid challenge"},
        {"nonce", -EPROTO, "invalid challenge"},
        {"=\"a\"", -EPROTO, "invalid challenge"},
    };
    const struct hy_hdfs_digest_login login = {.user = "u", .password = "p", .protocol = "", .server = "default"};
    const struct hy_hdfs_qops qops = qops_of("privacy");

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        struct hy_hdfs_sasl *s = hy_hdfs_sasl_digest_new(&login, &qops);
        struct hy_err err = {0};
        int rc = step(s, cases[i].challenge, NULL, 0, &err);

        if (rc != cases[i].rc || !strstr(err.text, cases[i].says))
            fail_msg("%s: %d %s", cases[i].challenge, rc, err.text);
        hy_hdfs_sasl_free(s);
    }
}

HY_TEST(test_a_server_without_the_password_is_rejected)
{
    static const char *const lies[] = {
        "rspauth=ea40f60335c427b5527b84dbabcdfffd", "rspauth=", "", "qop=auth", "rspauth=\"\"",
    };
    const struct hy_hdfs_digest_login login = {.user = "u", .password = "p", .protocol = "", .server = "default"};
    const struct hy_hdfs_qops qops = qops_of("authentication");

    for (size_t i = 0; i < HY_COUNT(lies); i++) {
        struct hy_hdfs_sasl *s = hy_hdfs_sasl_digest_new(&login, &qops);
        struct hy_err err = {0};

        assert_int_equal(step(s, "nonce=\"a\",algorithm=md5-sess", NULL, 0, &err), 1);
        assert_true(step(s, lies[i], NULL, 0, &err) < 0);
        assert_false(hy_hdfs_sasl_is_done(s));
        hy_hdfs_sasl_free(s);
    }
}

HY_TEST(test_quotes_in_a_challenge_are_unescaped)
{
    static const char text[] = "realm=\"a \\\"b\\\\\" , realm=\"second\",\tNonce=\"n\",algorithm=md5-sess,unknown=x,"
                               "QOP=\"auth-int, auth\"";
    const struct hy_hdfs_digest_login login = {.user = "u", .password = "p", .protocol = "", .server = "default"};
    const struct hy_hdfs_qops qops = qops_of("integrity");
    struct hy_hdfs_sasl *s = hy_hdfs_sasl_digest_new(&login, &qops);
    struct hy_hdfs_digest_challenge c;
    struct hy_err err = {0};
    char response[1000];

    assert_int_equal(hy_hdfs_digest_parse((const uint8_t *)text, strlen(text), &c), 0);
    assert_string_equal(c.realm, "a \"b\\");
    assert_string_equal(c.nonce, "n");
    assert_int_equal(c.qops, HY_HDFS_QOP_AUTH | HY_HDFS_QOP_INTEGRITY);
    assert_int_equal(step(s, text, response, sizeof(response), &err), 1);
    assert_non_null(strstr(response, "realm=\"a \\\"b\\\\\","));
    hy_hdfs_sasl_free(s);
}

/* ---- tokens ---- */

/* Written by Hadoop's DelegationTokenFetcher, and by its DtUtilShell in the other format. */
static const char *const token_files[] = {
    "4844545300010f3132372e302e302e313a33323536312b0012616c69636540484f50594152442e5445535405616c696365008a01a1e1497d34"
    "8a01a205560134010214427215ce3b4d41411fded7ec7a2343cfbb89309915484446535f44454c45474154494f4e5f544f4b454e0f3132372e"
    "302e302e313a333235363100",
    "484454530180010a7e0a0f3132372e302e302e313a3332353631126b0a2b0012616c69636540484f50594152442e5445535405616c69636500"
    "8a01a1e1497d348a01a20556013401021214427215ce3b4d41411fded7ec7a2343cfbb8930991a15484446535f44454c45474154494f4e5f54"
    "4f4b454e220f3132372e302e302e313a3332353631",
};

HY_TEST(test_token_files_of_hadoop_are_parsed)
{
    for (size_t i = 0; i < HY_COUNT(token_files); i++) {
        uint8_t bytes[300];
        const size_t n = from_hex(token_files[i], bytes);
        struct hy_err err = {0};
        struct hy_hdfs_tokens t;
        const Hdfs__Token *found;

        assert_int_equal(hy_hdfs_tokens_parse(bytes, n, "f", &t, &err), 0);
        assert_int_equal(t.count, 1);
        found = hy_hdfs_tokens_find(&t, HY_HDFS_TOKEN_KIND, "127.0.0.1:32561");
        assert_non_null(found);
        assert_int_equal(found->identifier.len, 43);
        assert_memory_equal(found->identifier.data,
                            "\0\x12"
                            "alice@HOPYARD.TEST\x05"
                            "alice",
                            26);
        assert_int_equal(found->password.len, 20);
        assert_hex(found->password.data, "427215ce3b4d41411fded7ec7a2343cfbb893099");
        assert_null(hy_hdfs_tokens_find(&t, HY_HDFS_TOKEN_KIND, "127.0.0.1:8020"));
        assert_null(hy_hdfs_tokens_find(&t, "HDFS_BLOCK_TOKEN", "127.0.0.1:32561"));
        hy_hdfs_tokens_done(&t);
    }
}

HY_TEST(test_truncated_and_damaged_token_files_are_rejected)
{
    for (size_t i = 0; i < HY_COUNT(token_files); i++) {
        uint8_t bytes[300];
        /* After the tokens of the first format only the number of secrets follows, which is ignored. */
        const size_t n = from_hex(token_files[i], bytes) - (i == 0 ? 1 : 0);
        struct hy_err err = {0};
        struct hy_hdfs_tokens t;

        for (size_t cut = 0; cut < n; cut++) {
            assert_int_equal(hy_hdfs_tokens_parse(bytes, cut, "/a/file", &t, &err), -EINVAL);
            assert_non_null(strstr(err.text, "/a/file"));
        }
        bytes[4] = 2;
        assert_int_equal(hy_hdfs_tokens_parse(bytes, n, "f", &t, &err), -EINVAL);
        assert_non_null(strstr(err.text, "version 2"));
    }
}

HY_TEST(test_hadoop_varints_of_all_lengths)
{
    /* One token with an identifier of 200 bytes, a length of two bytes: 0x8f (-113), then 200. */
    uint8_t bytes[300] = "HDTS";
    size_t n = 5;
    struct hy_err err = {0};
    struct hy_hdfs_tokens t;

    bytes[n++] = 1;
    bytes[n++] = 0;
    bytes[n++] = 0x8f;
    bytes[n++] = 200;
    n += 200;
    memcpy(bytes + n, "\0\1k\1s\0", 6);
    n += 6;
    assert_int_equal(hy_hdfs_tokens_parse(bytes, n, "f", &t, &err), 0);
    assert_int_equal(t.all[0]->identifier.len, 200);
    assert_non_null(hy_hdfs_tokens_find(&t, "k", "s"));
    hy_hdfs_tokens_done(&t);
    bytes[7] = 0x87; /* -121: a negative one */
    assert_int_equal(hy_hdfs_tokens_parse(bytes, n, "f", &t, &err), -EINVAL);
    memcpy(bytes + 5, "\x88\x7f\xff\xff\xff\xff\xff\xff\xff", 9); /* 2^63 - 1 tokens */
    assert_int_equal(hy_hdfs_tokens_parse(bytes, n, "f", &t, &err), -EINVAL);
}

/* Sets $HADOOP_TOKEN_FILE_LOCATION to a file with one token for that service. */
static void set_token_file(const char *path, const char *service)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1000);
    assert_int_equal(hy_buf_append(&b, "HDTS\0\1\0\1i\1p\x15" HY_HDFS_TOKEN_KIND, 33), 0);
    assert_int_equal(hy_buf_append(&b, (uint8_t[]){(uint8_t)strlen(service)}, 1), 0);
    assert_int_equal(hy_buf_append_str(&b, service), 0);
    assert_int_equal(hy_file_write(path, hy_buf_bytes(&b), b.len, 0600), 0);
    assert_int_equal(setenv("HADOOP_TOKEN_FILE_LOCATION", path, 1), 0);
}

static bool finds_token(const char *nameservice, unsigned port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct hy_hdfs_rpc_peer peer = {.host = "namenode.example", .port = port, .nameservice = nameservice};
    struct hy_hdfs_sock s = {.fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)}; /* UDP connects without a server */
    struct hy_hdfs_rpc_credentials login;
    struct hy_err err = {0};
    bool found;

    assert_int_equal(connect(s.fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(hy_hdfs_rpc_credentials_load(&login, &s, &peer, &err), 0);
    found = login.token != NULL;
    hy_hdfs_rpc_credentials_done(&login);
    hy_hdfs_sock_close(&s);
    return found;
}

HY_TEST(test_a_token_is_found_by_nameservice_address_or_name)
{
    char path[] = "/tmp/hy-token-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    set_token_file(path, "ha-hdfs:yard");
    assert_true(finds_token("yard", 8020));
    assert_false(finds_token("garden", 8020));
    assert_false(finds_token(NULL, 8020));
    set_token_file(path, "127.0.0.1:8020");
    assert_true(finds_token("yard", 8020));
    assert_true(finds_token(NULL, 8020));
    assert_false(finds_token(NULL, 8021));
    set_token_file(path, "namenode.example:8020");
    assert_true(finds_token(NULL, 8020));
    unlink(path);
    unsetenv("HADOOP_TOKEN_FILE_LOCATION");
    assert_false(finds_token(NULL, 8020));
}

static int read_tokens(void *arg)
{
    uint8_t bytes[300];
    struct hy_err err = {0};
    struct hy_hdfs_tokens t;
    int rc = 0;

    (void)arg;
    for (size_t i = 0; rc == 0 && i < HY_COUNT(token_files); i++) {
        rc = hy_hdfs_tokens_parse(bytes, from_hex(token_files[i], bytes), "f", &t, &err);
        if (rc == 0)
            hy_hdfs_tokens_done(&t);
    }
    return rc;
}

static int sign_on_by_digest(void *arg)
{
    const struct hy_hdfs_digest_login login = {.user = "u", .password = "p", .protocol = "", .server = "default"};
    const struct hy_hdfs_qops qops = qops_of("integrity");
    struct hy_hdfs_sasl *s = hy_hdfs_sasl_digest_new(&login, &qops);
    hy_cleanup_buf struct hy_buf b;
    struct hy_err err = {0};
    int rc = s ? 0 : -ENOMEM;

    (void)arg;
    hy_buf_init(&b, 4096);
    if (rc == 0)
        rc = step(s, "nonce=\"a\",algorithm=md5-sess,qop=\"auth-int\"", NULL, 0, &err);
    if (rc == 1)
        rc = hy_hdfs_sasl_wrap(s, "abc", 3, &b);
    hy_hdfs_sasl_free(s);
    return rc;
}

HY_TEST(test_out_of_memory_is_handled)
{
    hy_each_fault(HY_SEAM_ALLOC, read_tokens, NULL);
    hy_each_fault(HY_SEAM_ALLOC, sign_on_by_digest, NULL);
}
