/* SPDX-License-Identifier: Apache-2.0 */
/* Keys, messages, TLS, and clients that are refused. */
#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/file.h"
#include "base/mem.h"
#include "wire/message.h"
#include "wire/tls.h"
#include "wire_echo_server.h"

/* ---- keys ------------------------------------------------------------------------------------- */

HY_TEST_WITH(test_each_agent_has_a_different_key, NULL, log_restore)
{
    /* HKDF-SHA256 by RFC 5869 of 32 bytes 0x07, no salt, "hopyard agent key 1\0agent-1" */
    static const uint8_t expected[8] = {0x64, 0x81, 0x69, 0x55, 0x89, 0x2f, 0x8f, 0xb4};
    uint8_t key[HY_KEY_SIZE], one[HY_KEY_SIZE], two[HY_KEY_SIZE], again[HY_KEY_SIZE];

    memset(key, 7, sizeof key);
    assert_int_equal(hy_key_derive(key, "agent-1", one), 0);
    assert_int_equal(hy_key_derive(key, "agent-2", two), 0);
    assert_int_equal(hy_key_derive(key, "agent-1", again), 0);
    assert_memory_equal(one, again, sizeof one);
    assert_memory_not_equal(one, two, sizeof one);
    assert_memory_equal(one, expected, sizeof expected);
    assert_int_equal(hy_key_random(one), 0);
    assert_int_equal(hy_key_random(two), 0);
    assert_memory_not_equal(one, two, sizeof one);
}

static int key_file_scenario(void *arg)
{
    struct temp_dir *f = arg;
    hy_cleanup_close int dir = open(f->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    uint8_t key[HY_KEY_SIZE], read[HY_KEY_SIZE];
    int rc;

    memset(key, 0xa5, sizeof key);
    rc = hy_key_write(dir, f->file, key, NULL);
    if (rc == 0)
        rc = hy_key_read(f->file, read, NULL);
    if (rc == 0)
        assert_memory_equal(key, read, sizeof key);
    return rc;
}

HY_TEST_WITH(test_a_key_file_is_private_and_round_trips, NULL, log_restore)
{
    struct hy_err err = {0};
    uint8_t key[HY_KEY_SIZE];
    struct temp_dir f;
    struct stat st;

    assert_int_equal(temp_dir_make(&f), 0);
    hy_each_fault(HY_SEAM_SYS, key_file_scenario, &f);
    hy_each_fault(HY_SEAM_ALLOC, key_file_scenario, &f);
    assert_int_equal(key_file_scenario(&f), 0);
    assert_int_equal(stat(f.file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, 65);
    assert_int_equal(chmod(f.file, 0640), 0);
    assert_int_equal(hy_key_read(f.file, key, &err), -EPERM);
    assert_non_null(strstr(err.text, "chmod 600"));
    assert_int_equal(hy_file_write(f.file, "0123456789abcdef\n", 17, 0600), 0);
    assert_int_equal(hy_key_read(f.file, key, &err), -EINVAL);
    assert_non_null(strstr(err.text, "is not a key file"));
    assert_int_equal(hy_key_read(f.path, key, &err), -EINVAL);
    assert_int_equal(hy_key_read("/nowhere/key", key, &err), -ENOENT);
    assert_int_equal(hy_remove_tree(f.path), 0);
}

static const struct {
    const char *line;
    int rc;
} key_lines[] = {
    {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", 0},
    {"0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF\n", 0},
    {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 0}, /* without the end of the line */
    {"", -EINVAL},
    {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n", -EINVAL},
    {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0", -EINVAL},
    {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef and more", -EINVAL},
    {"g123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", -EINVAL},
    {"0/23456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n", -EINVAL},
    {"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde@\n", -EINVAL},
};

/* As `hopyard agent --key-file -` reads it, from a pipe in pieces. */
HY_TEST_WITH(test_a_key_from_standard_input_is_one_line_of_digits, NULL, log_restore)
{
    static const uint8_t start[] = {0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef};
    int old = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);

    for (size_t i = 0; i < HY_COUNT(key_lines); i++) {
        uint8_t key[HY_KEY_SIZE] = {0};
        struct hy_err err = {0};
        int ends[2], status;
        pid_t pid;

        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        assert_true(dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
        close(ends[0]);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            for (const char *c = key_lines[i].line; *c; c++)
                if (write(ends[1], c, 1) != 1)
                    break; /* it has read enough */
            _exit(0);
        }
        close(ends[1]);
        assert_int_equal(hy_key_read("-", key, &err), key_lines[i].rc);
        assert_true(key_lines[i].rc == 0 ? memcmp(key, start, 8) == 0
                                         : strstr(err.text, "64 hexadecimal digits") != NULL);
        assert_int_equal(dup2(old, STDIN_FILENO), STDIN_FILENO);
        assert_int_equal(waitpid(pid, &status, 0), pid);
    }
    hy_fault_arm(HY_SEAM_SYS, 1);
    assert_int_equal(hy_key_read("-", (uint8_t[HY_KEY_SIZE]){0}, NULL), -EIO);
    close(old);
}

/* ---- messages ------------------------------------------------------------------------------------ */

HY_TEST_WITH(test_the_memory_of_a_message_is_bounded_by_its_length, NULL, log_restore)
{
    enum { COUNT = 100000 };
    uint8_t *bytes = malloc(4 + 2 + 5 + 2 * COUNT);
    ProtobufCMessage *m = NULL;
    size_t n = 0, inner = 2 * COUNT;

    assert_non_null(bytes);
    bytes[n++] = 5 << 3 | 2; /* Control.report with many empty Metrics of two bytes each */
    for (size_t left = inner; left; left >>= 7)
        bytes[n++] = (uint8_t)((left & 127) | (left > 127 ? 128 : 0));
    for (int i = 0; i < COUNT; i++) {
        bytes[n++] = 4 << 3 | 2;
        bytes[n++] = 0;
    }
    assert_int_equal(hy_message_unpack(&hy__control__descriptor, bytes, n, &m), -EPROTO);
    assert_null(m);
    free(bytes);
}

static int message_scenario(void *arg)
{
    Hy__Control c = HY__CONTROL__INIT;
    Hy__Start s = HY__START__INIT;
    char text[] = "A=1", *env[1000];
    uint8_t bytes[16384];
    ProtobufCMessage *m;
    size_t n;
    int rc;

    (void)arg;
    for (int i = 0; i < 1000; i++)
        env[i] = text;
    s.n_env = 1000;
    s.env = env;
    c.body_case = HY__CONTROL__BODY_START;
    c.start = &s;
    n = hy__control__get_packed_size(&c);
    assert_in_range(n, 1, sizeof bytes);
    hy__control__pack(&c, bytes);
    rc = hy_message_unpack(&hy__control__descriptor, bytes, n, &m);
    if (rc < 0)
        return rc == -ENOMEM ? rc : 1;
    assert_int_equal(((Hy__Control *)m)->start->n_env, 1000);
    protobuf_c_message_free_unpacked(m, NULL);
    return 0;
}

HY_TEST_WITH(test_a_message_with_many_short_strings_is_parsed, NULL, log_restore)
{
    hy_each_fault(HY_SEAM_ALLOC, message_scenario, NULL);
}

HY_TEST_WITH(test_an_invalid_hello_is_refused, NULL, log_restore)
{
    uint8_t session[HY_SESSION_SIZE] = {1}, bytes[200];
    Hy__Hello m = HY__HELLO__INIT;
    hy_cleanup_buf struct hy_buf b;
    const char *why = "";
    struct hy_frame f;
    struct hy_hello h;
    size_t n;

    hy_buf_init(&b, 1000);
    assert_int_equal(hy_hello_append(&b, session, true, NULL), 0);
    assert_int_equal(hy_frame_parse(hy_buf_bytes(&b), b.len, HY_FRAME_MAX, &f, &why), b.len);
    assert_int_equal(hy_hello_parse(f.bytes, f.n, &h, &why), 0);
    assert_true(h.resumed && h.protocol == HY_PROTOCOL && h.mark_count == 0);
    assert_memory_equal(h.session, session, sizeof session);
    hy_hello_done(&h);
    m.session = (ProtobufCBinaryData){3, session};
    n = hy__hello__pack(&m, bytes);
    assert_int_equal(hy_hello_parse(bytes, n, &h, &why), -EPROTO);
    assert_string_equal(why, "Hello without a session");
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(hy_hello_parse(bytes, sizeof bytes, &h, &why), -EPROTO);
    assert_int_equal(hy_hello_parse(bytes, 300000, &h, &why), -EPROTO);
}

/* ---- clients that are refused --------------------------------------------------------------------- */

static X509 *self_signed(EVP_PKEY **ret_key)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();

    assert_true(key && x);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), 0);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC, (const uint8_t *)"agent-1", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    *ret_key = key;
    return x;
}

/* A plain OpenSSL connection with a self-signed certificate and no pre-shared key. */
static SSL *new_ssl_with_certificate(int fd, int server)
{
    SSL_CTX *c = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());
    EVP_PKEY *key;
    X509 *x = self_signed(&key);
    SSL *ssl;

    assert_non_null(c);
    assert_int_equal(SSL_CTX_use_certificate(c, x), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(c, key), 1);
    SSL_CTX_set_verify(c, SSL_VERIFY_NONE, NULL);
    ssl = SSL_new(c);
    assert_non_null(ssl);
    SSL_set_fd(ssl, fd);
    SSL_CTX_free(c);
    X509_free(x);
    EVP_PKEY_free(key);
    return ssl;
}

static void send_plain_text(struct world *w, int fd)
{
    (void)w;
    assert_int_equal(write(fd, "GET / HTTP/1.1\r\n\r\n", 18), 18);
}

static void announce_long_hello(struct world *w, int fd)
{
    (void)w;
    assert_int_equal(write(fd, "\x16\x03\x01\x40\x00\x01\x00\x3f\xfc", 9), 9);
}

static void send_more_than_a_hello(struct world *w, int fd)
{
    static uint8_t bytes[HY_TLS_HELLO_MAX + 1] = {0x16, 0x03, 0x01, 0x00, 0x10};

    (void)w;
    assert_int_equal(write(fd, bytes, sizeof bytes), sizeof bytes);
}

static void send_half_a_hello(struct world *w, int fd)
{
    struct hy_tls_context *c = hy_tls_context_new();
    struct hy_tls *t = hy_tls_new_client(c, "agent-2", w->key);
    hy_cleanup_buf struct hy_buf out;

    hy_buf_init(&out, SIZE_MAX);
    assert_int_equal(hy_tls_handshake(t, &out), 0);
    assert_int_equal(write(fd, hy_buf_bytes(&out), out.len / 2), out.len / 2);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
    hy_tls_free(t);
    hy_tls_context_free(c);
}

static void use_certificate(struct world *w, int fd)
{
    SSL *ssl = new_ssl_with_certificate(fd, 0);
    int rc, error;

    do {
        rc = SSL_connect(ssl);
        error = SSL_get_error(ssl, rc);
        world_step(w);
    } while (rc <= 0 && error == SSL_ERROR_WANT_READ);
    assert_int_not_equal(rc, 1);
    SSL_free(ssl);
}

/* The TLS handshake with the driver; 1 or -EPROTO. */
static int do_handshake(struct world *w, int fd, struct hy_tls *t)
{
    hy_cleanup_buf struct hy_buf out;
    int rc = 0;

    hy_buf_init(&out, SIZE_MAX);
    while (rc == 0) {
        uint8_t in[4096];
        ssize_t n;

        rc = hy_tls_handshake(t, &out);
        if (out.len)
            assert_int_equal(write(fd, hy_buf_bytes(&out), out.len), out.len);
        hy_buf_clear(&out);
        if (rc != 0)
            break;
        world_step(w);
        n = read(fd, in, sizeof in);
        if (n == 0)
            return -EPROTO;
        if (n > 0) {
            hy_tls_feed(t, in, (size_t)n);
            rc = hy_tls_handshake(t, &out);
        }
    }
    if (out.len)
        assert_int_equal(write(fd, hy_buf_bytes(&out), out.len), out.len);
    return rc;
}

static void connect_as(struct world *w, int fd, const char *identity, const uint8_t *key, const struct hy_buf *then)
{
    struct hy_tls_context *c = hy_tls_context_new();
    struct hy_tls *t = hy_tls_new_client(c, identity, key);
    hy_cleanup_buf struct hy_buf out;
    int rc = do_handshake(w, fd, t);

    hy_buf_init(&out, SIZE_MAX);
    assert_int_equal(rc > 0, then != NULL);
    if (then) {
        assert_int_equal(hy_tls_write(t, hy_buf_bytes(then), then->len, &out), 0);
        assert_int_equal(write(fd, hy_buf_bytes(&out), out.len), out.len);
    }
    hy_tls_free(t);
    hy_tls_context_free(c);
}

static void use_wrong_key(struct world *w, int fd)
{
    uint8_t key[HY_KEY_SIZE] = {1, 2, 3};

    connect_as(w, fd, "agent-2", key, NULL);
}

static void use_unknown_identity(struct world *w, int fd)
{
    uint8_t key[HY_KEY_SIZE];

    assert_int_equal(hy_key_derive(w->key, "stranger", key), 0);
    connect_as(w, fd, "stranger", key, NULL);
}

static void send_as_mallory(struct world *w, int fd, const void *bytes, size_t n)
{
    hy_cleanup_buf struct hy_buf then;
    uint8_t key[HY_KEY_SIZE];

    hy_buf_init(&then, SIZE_MAX);
    assert_int_equal(hy_buf_append(&then, bytes, n), 0);
    assert_int_equal(hy_key_derive(w->key, "mallory", key), 0);
    connect_as(w, fd, "mallory", key, &then);
}

static void send_garbage(struct world *w, int fd)
{
    send_as_mallory(w, fd, "\x05\x00\x00\x00\x77garbage", 12);
}

static void send_long_frame(struct world *w, int fd)
{
    send_as_mallory(w, fd, "\xff\xff\xff\x7f\x01\x02\x00\x00\x01\x00\x00\x00", 12);
}

static void send_no_hello(struct world *w, int fd)
{
    send_as_mallory(w, fd, "\x09\x00\x00\x00\x01\x02\x00\x00\x00\x00\x00\x00\0\0\0\0\0\0\0\0A", 21);
}

/* Sends a valid Hello, and then these bytes. */
static void send_hello_and(struct world *w, int fd, const void *bytes, size_t n)
{
    uint8_t session[HY_SESSION_SIZE] = {9};
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1000);
    assert_int_equal(hy_hello_append(&b, session, false, NULL), 0);
    assert_int_equal(hy_buf_append(&b, bytes, n), 0);
    send_as_mallory(w, fd, hy_buf_bytes(&b), b.len);
}

static void send_malformed_message(struct world *w, int fd)
{
    /* a control message of three invalid bytes */
    send_hello_and(w, fd, "\x0f\x00\x00\x00\x01\x02\x00\x00\x00\x00\x00\x00\0\0\0\0\0\0\0\0\3\0\0\0\xff\xff\xff", 27);
}

static void send_half_a_frame(struct world *w, int fd)
{
    send_hello_and(w, fd, "\x0f\x00\x00\x00\x01\x02\x00\x00\x00\x00", 10);
    assert_int_equal(shutdown(fd, SHUT_WR), 0);
}

static void send_hello_twice(struct world *w, int fd)
{
    send_hello_and(w, fd, "\x00\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00", 12);
}

static void send_this_hello(struct world *w, int fd, Hy__Hello *m)
{
    uint8_t session[HY_SESSION_SIZE] = {9}, bytes[100];
    struct hy_frame f = {.type = HY_FRAME_HELLO, .bytes = bytes};
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1000);
    m->session = (ProtobufCBinaryData){sizeof session, session};
    f.n = hy__hello__pack(m, bytes);
    assert_int_equal(hy_frame_append(&b, &f), 0);
    send_as_mallory(w, fd, hy_buf_bytes(&b), b.len);
}

static void send_another_version(struct world *w, int fd)
{
    Hy__Hello m = HY__HELLO__INIT;

    m.protocol = HY_PROTOCOL + 1;
    send_this_hello(w, fd, &m);
}

static void resume_unknown_session(struct world *w, int fd)
{
    Hy__Hello m = HY__HELLO__INIT;

    m.protocol = HY_PROTOCOL;
    m.resumed = true;
    send_this_hello(w, fd, &m);
}

static void send_no_session(struct world *w, int fd)
{
    send_as_mallory(w, fd, "\x00\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00", 12);
}

/* Another agent has this name. */
static void use_a_name_in_use(struct world *w, int fd)
{
    uint8_t session[HY_SESSION_SIZE] = {9}, key[HY_KEY_SIZE];
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, 1000);
    assert_int_equal(hy_hello_append(&b, session, false, NULL), 0);
    assert_int_equal(hy_key_derive(w->key, "agent-1", key), 0);
    connect_as(w, fd, "agent-1", key, &b);
}

static const struct bad_client {
    void (*act)(struct world *w, int fd);
    const char *why;
    int has_key; /* and a session, which lasts until it is silent for too long ... */
    int gones;     /* ... or ends at once, because of a protocol error */
} bad_clients[] = {
    {send_plain_text, "why=\"not TLS\"", 0, 0},
    {announce_long_hello, "why=\"ClientHello too long or empty\"", 0, 0},
    {send_more_than_a_hello, "why=\"more than a ClientHello before the key is proven\"", 0, 0},
    {send_half_a_hello, "why=\"connection lost\"", 0, 0},
    {use_certificate, "identity= why=", 0, 0},
    {use_wrong_key, "identity= why=\"binder does not verify\"", 0, 0},
    {use_unknown_identity, "why=\"unknown identity\"", 0, 0},
    {send_garbage, "identity=mallory why=\"unknown frame version\"", 0, 0},
    {send_long_frame, "identity=mallory why=\"frame too long\"", 0, 0},
    {send_no_hello, "identity=mallory why=\"the first frame is not a Hello\"", 0, 0},
    {send_no_session, "identity=mallory why=\"Hello without a session\"", 0, 0},
    {send_another_version, "use the same version of hopyard on both ends", 0, 0},
    {resume_unknown_session, "identity=mallory why=\"unknown session\"", 0, 0},
    {use_a_name_in_use, "identity=agent-1 why=\"another agent with this name is connected\"", 0, 0},
    {send_malformed_message, "identity=mallory why=\"malformed control message\"", 1, 1},
    {send_half_a_frame, "identity=mallory why=\"connection lost\"", 1, 0},
    {send_hello_twice, "identity=mallory why=\"unexpected frame type on a session\"", 1, 1},
};

HY_TEST_WITH(test_unauthorized_and_invalid_clients_are_dropped_with_one_log_line, NULL, log_restore)
{
    for (size_t i = 0; i < HY_COUNT(bad_clients); i++) {
        const struct bad_client *m = &bad_clients[i];
        struct world w;
        struct hy_peer *good;
        int fd;

        assert_int_equal(world_init(&w, LONG_MS), 0);
        assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
        world_until(&w, w.driver.ups == 1 && w.agents[0].ups == 1);
        good = w.driver.peer;
        log_begin();
        fd = connect_raw(&w);
        m->act(&w, fd);
        while (log_count("link dropped") == 0)
            world_step(&w);
        assert_int_equal(w.driver.ups, 1 + m->has_key);
        assert_int_equal(side_send(&w.agents[0], w.agents[0].peer), 0);
        assert_int_equal(side_send(&w.driver, good), 0);
        world_until(&w, w.driver.got == 1 && w.agents[0].got == 1);
        if (log_count(m->why) != 1 || log_count("") != 1) {
            log_end();
            fail_msg("client %zu: \"%s\" is not the only line of the log", i, m->why);
        }
        log_end();
        assert_int_equal(w.driver.gones, m->gones);
        assert_int_equal(w.agents[0].gones, 0);
        close(fd);
        world_done(&w);
    }
}

static int listen_raw(uint16_t *ret_port)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(fd, 10), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &size), 0);
    *ret_port = ntohs(a.sin_port);
    return fd;
}

/* A server at the driver's address, with a certificate and without the key. */
HY_TEST_WITH(test_an_agent_sends_nothing_to_a_server_without_the_key, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];
    SSL *ssl = NULL;
    int listener, fd = -1, tries = 0;
    char byte;

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    listener = listen_raw(&w.port);
    assert_int_equal(world_dial(&w, "agent-1", 400), 0);
    assert_int_equal(side_send(a, a->peer), 0);
    while (a->gones == 0) {
        world_step(&w);
        if (!ssl && (fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
            ssl = new_ssl_with_certificate(fd, 1);
            tries++;
        }
        if (ssl) {
            int rc = SSL_accept(ssl);
            int error = SSL_get_error(ssl, rc);

            if (rc == 1) { /* the handshake may look complete to the server; then the agent closes */
                rc = SSL_read(ssl, &byte, 1);
                error = SSL_get_error(ssl, rc);
                assert_true(rc <= 0);
            }
            if (rc > 0 || error == SSL_ERROR_WANT_READ)
                continue;
            ERR_clear_error();
            SSL_free(ssl);
            ssl = NULL;
            close(fd);
        }
    }
    assert_true(tries > 0);
    assert_int_equal(a->ups, 0);
    assert_non_null(strstr(a->why, "does not prove the key"));
    assert_int_equal(log_count("certificate verify failed"), 1);
    if (ssl) {
        SSL_free(ssl);
        close(fd);
    }
    close(listener);
    log_end();
    world_done(&w);
}

HY_TEST_WITH(test_an_agent_with_a_wrong_key_is_refused, NULL, log_restore)
{
    struct world w;
    struct side *a = &w.agents[0];
    uint8_t key[HY_KEY_SIZE] = {1};

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    assert_int_equal(side_open(a, &w, 300), 0);
    w.agent_count = 1;
    assert_int_equal(hy_net_dial(a->net, "127.0.0.1", w.port, "agent-1", key, &a->peer, NULL), 0);
    world_until(&w, a->gones == 1);
    assert_int_equal(a->ups + w.driver.ups, 0);
    log_end();
    world_done(&w);
}

HY_TEST_WITH(test_an_idle_connection_is_dropped, NULL, log_restore)
{
    struct world w;
    struct hy_link *l;
    int fd;

    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    fd = connect_raw(&w);
    world_until(&w, w.driver.net->pending_count == 1);
    l = hy_container(w.driver.net->pending_links.next, struct hy_link, pending);
    l->started -= HY_HELLO_TIMEOUT_MS; /* as if it had connected that long ago */
    hy_net_wake(w.driver.net, hy_net_now(w.driver.net));
    world_until(&w, w.driver.net->pending_count == 0);
    assert_int_equal(log_count("timeout waiting for the Hello"), 1);
    assert_int_equal(log_count(""), 1);
    log_end();
    close(fd);
    world_done(&w);
}

/* Idle connections do not prevent a valid agent from connecting. */
HY_TEST_WITH(test_half_open_connections_are_bounded, NULL, log_restore)
{
    static int fds[HY_PENDING_LINKS_MAX + 10];
    struct world w;

    need_descriptors(2 * HY_COUNT(fds) + 100);
    log_begin();
    assert_int_equal(world_init(&w, LONG_MS), 0);
    for (int i = 0; i < HY_PENDING_LINKS_MAX + 10; i++) {
        fds[i] = connect_raw(&w);
        world_step(&w);
    }
    world_until(&w, log_count("too many connections that have not sent a Hello") == 10);
    assert_int_equal(w.driver.net->pending_count, HY_PENDING_LINKS_MAX);
    assert_int_equal(world_dial(&w, "agent-1", LONG_MS), 0);
    world_until(&w, w.driver.ups == 1 && w.agents[0].ups == 1);
    log_end();
    for (int i = 0; i < HY_PENDING_LINKS_MAX + 10; i++)
        close(fds[i]);
    world_done(&w);
}
