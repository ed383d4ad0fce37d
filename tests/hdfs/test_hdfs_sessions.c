/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protected sessions of the HDFS client: security layers, and the authentication
 * exchange with a NameNode. The servers here are fake, also malicious ones; real
 * clusters are tested in e2e/test_hdfs_security.py.
 */
#include "support.h"

#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "hdfs/security/aes.h"
#include "hdfs/conf.h"
#include "hdfs/rpc/rpc_internal.h"
#include "hdfs/security/sasl.h"
#include "hdfs/security/sasl_mechanism.h"
#include "hdfs/security/security_layer.h"
#include "hdfs/sock.h"

/* ---- security layers ---- */

/* A mechanism whose messages are the inverted bytes and a number. */
struct inverting {
    struct hy_hdfs_sasl base;
    uint8_t out, in;
};

static int turn_wrap(struct hy_hdfs_sasl *s, const void *bytes, size_t n, struct hy_buf *out)
{
    uint8_t *room = hy_buf_reserve(out, n + 1);

    assert_non_null(room);
    for (size_t i = 0; i < n; i++)
        room[i] = (uint8_t)~((const uint8_t *)bytes)[i];
    room[n] = ((struct inverting *)s)->out++;
    hy_buf_added(out, n + 1);
    return 0;
}

static int64_t turn_unwrap(struct hy_hdfs_sasl *s, uint8_t *token, size_t n)
{
    if (n == 0 || token[n - 1] != ((struct inverting *)s)->in++)
        return -EBADMSG;
    for (size_t i = 0; i + 1 < n; i++)
        token[i] = (uint8_t)~token[i];
    return (int64_t)n - 1;
}

static void turn_free(struct hy_hdfs_sasl *s)
{
    free(s);
}

static struct hy_hdfs_security_layer *inverting_layer(size_t wrap_max)
{
    static const struct hy_hdfs_sasl_ops ops = {NULL, turn_wrap, turn_unwrap, turn_free};
    struct inverting *t = calloc(1, sizeof(*t));
    struct hy_hdfs_security_layer *s;

    assert_non_null(t);
    t->base.ops = &ops;
    t->base.wrap_max = wrap_max;
    s = hy_hdfs_security_layer_sasl_new(&t->base);
    assert_non_null(s);
    return s;
}

static struct hy_hdfs_security_layer *aes_seal(uint8_t in, uint8_t out)
{
    static const uint8_t iv[HY_HDFS_AES_IV_SIZE];
    struct hy_err err = {0};
    uint8_t key[16];
    struct hy_hdfs_aes *a, *b;
    struct hy_hdfs_security_layer *s;

    memset(key, in, sizeof(key));
    a = hy_hdfs_aes_new(key, sizeof(key), iv, &err);
    memset(key, out, sizeof(key));
    b = hy_hdfs_aes_new(key, sizeof(key), iv, &err);
    s = hy_hdfs_security_layer_aes_new(a, b);
    assert_non_null(s);
    return s;
}

static void join(struct hy_hdfs_sock *a, struct hy_hdfs_sock *b)
{
    const struct timeval slice = {.tv_usec = 500000}; /* as in hy_hdfs_sock_connect: no call blocks forever */
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof(slice)), 0);
        assert_int_equal(setsockopt(fds[i], SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof(slice)), 0);
    }
    *a = (struct hy_hdfs_sock){.fd = fds[0], .timeout_ms = 5000};
    *b = (struct hy_hdfs_sock){.fd = fds[1], .timeout_ms = 5000};
}

/* Sends three buffers, which stay unchanged, and receives in odd sizes. */
static void carry(struct hy_hdfs_sock *from, struct hy_hdfs_sock *to, size_t n)
{
    uint8_t *sent = malloc(n + 1), *kept = malloc(n + 1), *got = calloc(1, n + 1);
    struct iovec parts[] = {{.iov_base = sent, .iov_len = n / 3},
                            {.iov_base = sent + n / 3, .iov_len = 0},
                            {.iov_base = sent + n / 3, .iov_len = n - n / 3}};
    size_t at = 0;

    for (size_t i = 0; i < n; i++)
        kept[i] = sent[i] = (uint8_t)(i * 7 + i / 251);
    assert_int_equal(hy_hdfs_sock_send_all(from, parts, 3), 0);
    assert_memory_equal(sent, kept, n);
    assert_int_equal(hy_hdfs_sock_poll(to, 5000), 1);
    while (at < n) {
        struct iovec into[] = {{.iov_base = got + at, .iov_len = at % 5 < n - at ? at % 5 : n - at},
                               {.iov_base = NULL, .iov_len = 0}};
        ssize_t rc;

        into[1] = (struct iovec){.iov_base = got + at + into[0].iov_len, .iov_len = n - at - into[0].iov_len};
        if (into[1].iov_len > 977)
            into[1].iov_len = 977;
        rc = hy_hdfs_sock_recvv(to, into, 2);
        assert_true(rc > 0);
        at += (size_t)rc;
    }
    assert_memory_equal(got, kept, n);
    free(sent);
    free(kept);
    free(got);
}

HY_TEST(test_a_security_layer_is_transparent)
{
    for (int kind = 0; kind < 3; kind++) {
        struct hy_hdfs_sock a, b;

        join(&a, &b);
        a.layer = kind == 0 ? aes_seal(1, 2) : inverting_layer(kind == 1 ? 1000 : 65536);
        b.layer = kind == 0 ? aes_seal(2, 1) : inverting_layer(kind == 1 ? 1000 : 65536);
        for (size_t n = 1; n < 70000; n = n * 3 + 1) {
            carry(&a, &b, n);
            carry(&b, &a, n);
        }
        assert_int_equal(hy_hdfs_sock_poll(&a, 0), 0);
        hy_hdfs_sock_close(&a);
        hy_hdfs_sock_close(&b);
    }
}

HY_TEST(test_decrypted_bytes_count_as_available)
{
    struct hy_hdfs_sock a, b;
    char byte;

    join(&a, &b);
    a.layer = inverting_layer(100);
    b.layer = inverting_layer(100);
    assert_int_equal(hy_hdfs_sock_send_all(&a, &(struct iovec){.iov_base = (void *)"ab", .iov_len = 2}, 1), 0);
    assert_int_equal(hy_hdfs_sock_recv(&b, &byte, 1), 1);
    assert_int_equal(hy_hdfs_sock_poll(&b, 0), 1); /* although the socket is empty */
    assert_int_equal(hy_hdfs_sock_recv(&b, &byte, 1), 1);
    assert_int_equal(byte, 'b');
    assert_int_equal(hy_hdfs_sock_poll(&b, 0), 0);
    hy_hdfs_sock_close(&a);
    hy_hdfs_sock_close(&b);
}

HY_TEST(test_invalid_messages_are_rejected)
{
    static const struct {
        const char *bytes;
        size_t n;
        int rc;
    } lies[] = {
        {"\x7f\xff\xff\xff", 4, -EPROTO},         /* 2 GiB */
        {"\0\0\0\0", 4, -EBADMSG},                /* no number */
        {"\0\0\0\2a\7", 6, -EBADMSG},             /* wrong number */
        {"\0\0\0\5ab", 6, -ECONNRESET},           /* truncated */
        {"\0\0", 2, -ECONNRESET},
    };
    char byte;

    for (size_t i = 0; i < HY_COUNT(lies); i++) {
        struct hy_hdfs_sock a, b;

        join(&a, &b);
        a.layer = inverting_layer(100);
        assert_int_equal(write(b.fd, lies[i].bytes, lies[i].n), lies[i].n);
        hy_hdfs_sock_close(&b);
        assert_int_equal(hy_hdfs_sock_recv(&a, &byte, 1), lies[i].rc);
        hy_hdfs_sock_close(&a);
    }
}

/* ---- authentication of a NameNode ---- */

struct script {
    struct hy_buf b;
};

static void say(struct script *s, Hdfs__RpcSasl__State state, const char *token, Hdfs__RpcSasl__Auth *way)
{
    Hdfs__RpcResponseHeader h = HDFS__RPC_RESPONSE_HEADER__INIT;
    Hdfs__RpcSasl m = HDFS__RPC_SASL__INIT;
    const size_t begin = s->b.len;

    h.callid = (uint32_t)-33;
    m.state = state;
    m.auths = &way;
    m.n_auths = way ? 1 : 0;
    m.has_token = token != NULL;
    m.token.data = (uint8_t *)token;
    m.token.len = token ? strlen(token) : 0;
    assert_int_equal(hy_buf_append(&s->b, "\0\0\0", 4), 0);
    assert_int_equal(hy_hdfs_delimited_append(&s->b, &h.base), 0);
    assert_int_equal(hy_hdfs_delimited_append(&s->b, &m.base), 0);
    hy_hdfs_rpc_end_frame(&s->b, begin);
}

static void offer(struct script *s, const char *method, const char *mechanism)
{
    Hdfs__RpcSasl__Auth way = HDFS__RPC_SASL__AUTH__INIT;

    way.method = (char *)method;
    way.mechanism = (char *)mechanism;
    way.protocol = (char *)"hdfs";
    way.serverid = (char *)"localhost";
    say(s, HDFS__RPC_SASL__STATE__NEGOTIATE, NULL, &way);
}

static struct hy_hdfs_conf *conf_of(const char *key, const char *value)
{
    struct hy_err err = {0};
    struct hy_hdfs_conf *c = hy_hdfs_conf_load(NULL, &err);
    char *text = hy_asprintf("<configuration><property><name>hadoop.security.authentication</name>"
                             "<value>kerberos</value></property><property><name>%s</name><value>%s</value></property>"
                             "</configuration>",
                             key, value);

    assert_non_null(c);
    assert_int_equal(hy_hdfs_conf_parse(c, text, strlen(text), "test", &err), 0);
    free(text);
    return c;
}

/* Authenticates with a token, or with Kerberos when there are settings; the server sends the script and closes. */
static int authenticate(struct script *s, const struct hy_hdfs_conf *conf, enum hy_hdfs_rpc_auth *ret,
                        struct hy_err *err)
{
    Hdfs__Token token = HDFS__TOKEN__INIT;
    const struct hy_hdfs_rpc_peer peer = {
        .host = "127.0.0.1", .port = 1, .conf = conf, .principal = "dfs.namenode.kerberos.principal"};
    const struct hy_hdfs_rpc_credentials login = {.token = conf ? NULL : &token, .has_kerberos = conf};
    struct hy_hdfs_sasl *sasl = NULL;
    struct hy_hdfs_sock a, b;
    int rc;

    join(&a, &b);
    assert_int_equal(write(b.fd, hy_buf_bytes(&s->b), s->b.len), s->b.len);
    assert_int_equal(shutdown(b.fd, SHUT_WR), 0);
    rc = hy_hdfs_rpc_authenticate(&a, &login, &peer, ret, &sasl, err);
    assert_null(sasl);
    hy_hdfs_sock_close(&a);
    hy_hdfs_sock_close(&b);
    hy_buf_done(&s->b);
    hy_buf_init(&s->b, 1 << 20);
    return rc;
}

static void assert_error(int rc, int code, const struct hy_err *err, const char *words)
{
    if (rc != code || !strstr(err->text, words))
        fail_msg("%d %s", rc, err->text);
}

HY_TEST(test_a_namenode_that_does_not_authenticate_itself_is_rejected)
{
    static const char challenge[] = "realm=\"default\",nonce=\"n\",qop=\"auth\",algorithm=md5-sess";
    enum hy_hdfs_rpc_auth method;
    struct hy_err err = {0};
    struct script s;

    hy_buf_init(&s.b, 1 << 20);
    offer(&s, "TOKEN", "DIGEST-MD5");
    say(&s, HDFS__RPC_SASL__STATE__SUCCESS, NULL, NULL);
    assert_error(authenticate(&s, NULL, &method, &err), -EACCES, &err, "did not authenticate itself");
    offer(&s, "TOKEN", "DIGEST-MD5");
    say(&s, HDFS__RPC_SASL__STATE__CHALLENGE, challenge, NULL);
    say(&s, HDFS__RPC_SASL__STATE__SUCCESS, NULL, NULL);
    assert_error(authenticate(&s, NULL, &method, &err), -EACCES, &err, "did not authenticate itself");
    offer(&s, "TOKEN", "DIGEST-MD5");
    say(&s, HDFS__RPC_SASL__STATE__CHALLENGE, challenge, NULL);
    say(&s, HDFS__RPC_SASL__STATE__SUCCESS, "rspauth=ea40f60335c427b5527b84dbabcdfffd", NULL);
    assert_error(authenticate(&s, NULL, &method, &err), -EACCES, &err, "it may be an impostor");
    say(&s, HDFS__RPC_SASL__STATE__CHALLENGE, challenge, NULL);
    assert_error(authenticate(&s, NULL, &method, &err), -EPROTO, &err, "it sent an invalid challenge");
    offer(&s, "TOKEN", "DIGEST-MD5");
    offer(&s, "TOKEN", "DIGEST-MD5");
    assert_error(authenticate(&s, NULL, &method, &err), -EPROTO, &err, "a second time");
    say(&s, HDFS__RPC_SASL__STATE__WRAP, "x", NULL);
    assert_error(authenticate(&s, NULL, &method, &err), -EPROTO, &err, "unknown authentication message");
    offer(&s, "TOKEN", "DIGEST-MD5");
    assert_error(authenticate(&s, NULL, &method, &err), -ECONNRESET, &err, "does not respond");
    hy_buf_done(&s.b);
}

HY_TEST(test_a_namenode_without_security_needs_the_fallback_setting)
{
    struct hy_hdfs_conf *strict = conf_of("a", "b");
    struct hy_hdfs_conf *loose = conf_of("ipc.client.fallback-to-simple-auth-allowed", "true");
    enum hy_hdfs_rpc_auth method = HY_HDFS_AUTH_TOKEN;
    struct hy_err err = {0};
    struct script s;

    hy_buf_init(&s.b, 1 << 20);
    for (int i = 0; i < 2; i++) { /* one that offers SIMPLE, and an old one that reports success at once */
        struct script once;

        hy_buf_init(&once.b, 1 << 20);
        if (i)
            offer(&once, "SIMPLE", "");
        else
            say(&once, HDFS__RPC_SASL__STATE__SUCCESS, NULL, NULL);
        assert_int_equal(hy_buf_append(&s.b, hy_buf_bytes(&once.b), once.b.len), 0);
        assert_error(authenticate(&s, strict, &method, &err), -EACCES, &err,
                     "ipc.client.fallback-to-simple-auth-allowed");
        assert_int_equal(hy_buf_append(&s.b, hy_buf_bytes(&once.b), once.b.len), 0);
        assert_int_equal(authenticate(&s, loose, &method, &err), 0);
        assert_int_equal(method, HY_HDFS_AUTH_SIMPLE);
        hy_buf_done(&once.b);
    }
    hy_buf_done(&s.b);
    hy_hdfs_conf_free(strict);
    hy_hdfs_conf_free(loose);
}

HY_TEST(test_a_namenode_with_another_principal_gets_no_ticket)
{
    static const struct {
        const char *key, *value, *says;
        int rc;
    } cases[] = {
        {"dfs.namenode.kerberos.principal", "hdfs/elsewhere@R", "hdfs/localhost@R, but", -EACCES},
        {"dfs.namenode.kerberos.principal", "hive/localhost@R", "hdfs/localhost@R, but", -EACCES},
        {"dfs.namenode.kerberos.principal", "hdfs@R", "hdfs/localhost@R, but", -EACCES},
        {"dfs.namenode.kerberos.principal.pattern", "hive/*", "kerberos.principal.pattern is hive/*", -EACCES},
        {"something", "else", "set dfs.namenode.kerberos.principal", -EINVAL},
    };
    enum hy_hdfs_rpc_auth method;

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        struct hy_hdfs_conf *conf = conf_of(cases[i].key, cases[i].value);
        struct hy_err err = {0};
        struct script s;

        hy_buf_init(&s.b, 1 << 20);
        offer(&s, "KERBEROS", "GSSAPI");
        assert_error(authenticate(&s, conf, &method, &err), cases[i].rc, &err, cases[i].says);
        hy_buf_done(&s.b);
        hy_hdfs_conf_free(conf);
    }
}

HY_TEST(test_missing_credentials_are_reported)
{
    struct hy_hdfs_conf *conf = conf_of("a", "b");
    enum hy_hdfs_rpc_auth method;
    struct hy_err err = {0};
    struct script s;

    hy_buf_init(&s.b, 1 << 20);
    offer(&s, "TOKEN", "DIGEST-MD5");
    assert_error(authenticate(&s, conf, &method, &err), -EACCES, &err, "TOKEN, and there is no token for it");
    offer(&s, "KERBEROS", "GSSAPI");
    assert_error(authenticate(&s, NULL, &method, &err), -EACCES, &err,
                 "set hadoop.security.authentication to kerberos");
    hy_buf_done(&s.b);
    hy_hdfs_conf_free(conf);
}

/* ---- wrapped frames ---- */

HY_TEST(test_frames_are_wrapped_in_messages_of_the_accepted_size)
{
    static const struct hy_hdfs_sasl_ops ops = {NULL, turn_wrap, turn_unwrap, turn_free};
    struct inverting *ours = calloc(1, sizeof(*ours)), *theirs = calloc(1, sizeof(*theirs));
    hy_cleanup_buf struct hy_buf sent, got;
    struct hy_hdfs_sock a, b;
    uint8_t bytes[1000];

    ours->base = theirs->base = (struct hy_hdfs_sasl){.ops = &ops, .wrap_max = 300};
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    hy_buf_init(&sent, 1 << 20);
    hy_buf_init(&got, 1 << 20);
    assert_int_equal(hy_hdfs_rpc_wrap(&ours->base, bytes, sizeof(bytes), &sent), 0);
    assert_int_equal(ours->out, 4);
    /* Frames of a server have another header: each is converted. */
    struct script s;
    hy_buf_init(&s.b, 1 << 20);
    for (size_t at = 0; at < sizeof(bytes); at += 250) {
        Hdfs__RpcResponseHeader h = HDFS__RPC_RESPONSE_HEADER__INIT;
        Hdfs__RpcSasl m = HDFS__RPC_SASL__INIT;
        hy_cleanup_buf struct hy_buf token;
        const size_t begin = s.b.len;

        hy_buf_init(&token, 1000);
        assert_int_equal(hy_hdfs_sasl_wrap(&theirs->base, bytes + at, 250, &token), 0);
        h.callid = (uint32_t)-33;
        m.state = HDFS__RPC_SASL__STATE__WRAP;
        m.has_token = 1;
        m.token.data = (uint8_t *)hy_buf_bytes(&token);
        m.token.len = token.len;
        assert_int_equal(hy_buf_append(&s.b, "\0\0\0", 4), 0);
        assert_int_equal(hy_hdfs_delimited_append(&s.b, &h.base), 0);
        assert_int_equal(hy_hdfs_delimited_append(&s.b, &m.base), 0);
        hy_hdfs_rpc_end_frame(&s.b, begin);
    }
    say(&s, HDFS__RPC_SASL__STATE__SUCCESS, "x", NULL); /* not wrapped: forged */
    join(&a, &b);
    assert_int_equal(write(b.fd, hy_buf_bytes(&s.b), s.b.len), s.b.len);
    for (int i = 0; i < 4; i++)
        assert_int_equal(hy_hdfs_rpc_receive_wrapped(&ours->base, &a, 1 << 20, &got), 0);
    assert_int_equal(got.len, sizeof(bytes));
    assert_memory_equal(hy_buf_bytes(&got), bytes, sizeof(bytes));
    assert_int_equal(hy_hdfs_rpc_receive_wrapped(&ours->base, &a, 1 << 20, &got), -EPROTO);
    hy_buf_done(&s.b);
    hy_hdfs_sock_close(&a);
    hy_hdfs_sock_close(&b);
    free(ours);
    free(theirs);
}
