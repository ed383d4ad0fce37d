/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Authentication by SASL: RpcSasl messages in frames with call number -33.
 *
 *     client    NEGOTIATE
 *     server    NEGOTIATE   its methods: TOKEN by DIGEST-MD5, KERBEROS by GSSAPI, SIMPLE; optionally a first challenge
 *     client    INITIATE    the chosen method, a first response
 *     server    CHALLENGE   … and RESPONSE to it, as often as the mechanism requires
 *     server    SUCCESS
 *
 * Then, for integrity and privacy, frames are sent inside the tokens of WRAP
 * messages: a whole number of tokens contains a whole number of frames, including
 * their lengths.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "fs/fs.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/rpc/rpc_internal.h"
#include "hdfs/security/sasl.h"
#include "hdfs/sock.h"

#define CALL_SASL (-33)
#define MESSAGE_MAX (1u << 20)
#define ROUNDS_MAX 16

/* ---- credentials ------------------------------------------------------------------ */

static const char *setting(const struct hy_hdfs_rpc_peer *peer, const char *key)
{
    return peer->conf ? hy_hdfs_conf_get(peer->conf, key) : NULL;
}

static bool is_kerberos(const struct hy_hdfs_rpc_peer *peer)
{
    const char *method = setting(peer, "hadoop.security.authentication");

    return method && strcasecmp(method, "kerberos") == 0;
}

/* The peer address, "10.0.0.1:8020". */
static int address_of(const struct hy_hdfs_sock *sock, char *out, size_t size)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);
    char host[INET6_ADDRSTRLEN + 20], port[8];

    if (getpeername(sock->fd, (struct sockaddr *)&a, &n) < 0)
        return -errno;
    if (getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -EHOSTUNREACH;
    snprintf(out, size, "%s:%s", host, port);
    return 0;
}

/* A token is for a nameservice, for an address, or, when hadoop.security.token.service.use_ip is false, for a name. */
static const Hdfs__Token *find_token(const struct hy_hdfs_tokens *tokens, const struct hy_hdfs_sock *sock,
                                     const struct hy_hdfs_rpc_peer *peer)
{
    const Hdfs__Token *found = NULL;
    char service[320];

    if (tokens->count == 0)
        return NULL;
    if (peer->nameservice) {
        snprintf(service, sizeof(service), "ha-hdfs:%s", peer->nameservice);
        found = hy_hdfs_tokens_find(tokens, HY_HDFS_TOKEN_KIND, service);
    }
    if (!found && address_of(sock, service, sizeof(service)) == 0)
        found = hy_hdfs_tokens_find(tokens, HY_HDFS_TOKEN_KIND, service);
    if (!found) {
        snprintf(service, sizeof(service), "%s:%u", peer->host, peer->port);
        found = hy_hdfs_tokens_find(tokens, HY_HDFS_TOKEN_KIND, service);
    }
    return found;
}

int hy_hdfs_rpc_credentials_load(struct hy_hdfs_rpc_credentials *l, const struct hy_hdfs_sock *sock,
                                 const struct hy_hdfs_rpc_peer *peer, struct hy_err *err)
{
    int rc;

    *l = (struct hy_hdfs_rpc_credentials){.token = peer->token, .has_kerberos = is_kerberos(peer)};
    if (peer->token)
        return 0;
    rc = hy_hdfs_tokens_load(&l->tokens, err);
    if (rc == 0)
        l->token = find_token(&l->tokens, sock, peer);
    return rc;
}

void hy_hdfs_rpc_credentials_done(struct hy_hdfs_rpc_credentials *l)
{
    hy_hdfs_tokens_done(&l->tokens);
}

/* ---- identity of the server ------------------------------------------------ */

/* The host name of the address by reverse DNS, as in Java. */
static void canonical_host(const struct hy_hdfs_sock *sock, char *out, size_t size)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);

    if (getpeername(sock->fd, (struct sockaddr *)&a, &n) < 0 ||
        getnameinfo((struct sockaddr *)&a, n, out, (socklen_t)size, NULL, 0, NI_NAMEREQD) != 0)
        *out = '\0';
}

/* "hdfs/_HOST@REALM": the announced principal matches when its host is the one we connected to. */
static bool matches_principal(const char *expected, const Hdfs__RpcSasl__Auth *auth, const struct hy_hdfs_sock *sock,
                              const char *host)
{
    const size_t service = strcspn(expected, "/@"), rest = strcspn(expected, "@");
    const char *instance = expected[service] == '/' ? expected + service + 1 : "";
    const size_t n = rest > service ? rest - service - 1 : 0;
    char canonical[NI_MAXHOST];

    if (strlen(auth->protocol) != service || strncmp(auth->protocol, expected, service) != 0)
        return false;
    if (n != 5 || strncmp(instance, "_HOST", 5) != 0)
        return strlen(auth->serverid) == n && strncmp(auth->serverid, instance, n) == 0;
    canonical_host(sock, canonical, sizeof(canonical));
    return strcasecmp(auth->serverid, host) == 0 || strcasecmp(auth->serverid, canonical) == 0;
}

/*
 * The principal to request a ticket for: the one that the server announces, if it
 * matches the settings. The caller frees it.
 */
static int server_principal(const Hdfs__RpcSasl__Auth *auth, const struct hy_hdfs_sock *sock,
                            const struct hy_hdfs_rpc_peer *peer, char **ret, struct hy_err *err)
{
    const char *expected = setting(peer, peer->principal), *realm = expected ? strchr(expected, '@') : NULL, *pattern;
    hy_cleanup_free char *name = NULL;
    char key[128];

    if (!auth->protocol || !*auth->protocol || !auth->serverid || !*auth->serverid)
        return hy_err_set(err, -EPROTO, "it does not announce its principal");
    name = hy_asprintf("%s/%s%s", auth->protocol, auth->serverid, realm ? realm : "");
    if (!name)
        return hy_err_oom(err);
    snprintf(key, sizeof(key), "%s.pattern", peer->principal);
    pattern = setting(peer, key);
    if (!pattern && !expected)
        return hy_err_set(err, -EINVAL,
                          "its expected principal is unknown: set %s in hdfs-site.xml (in"
                          " $HADOOP_CONF_DIR)",
                          peer->principal);
    if (pattern ? !hy_fs_glob_matches(pattern, name) : !matches_principal(expected, auth, sock, peer->host))
        return hy_err_set(err, -EACCES, "its principal is %s, but %s%s is %s", name, peer->principal,
                          pattern ? ".pattern" : "", pattern ? pattern : expected);
    *ret = hy_take(name);
    return 0;
}

/* ---- choice of a method --------------------------------------------------------------- */

static struct hy_hdfs_sasl *digest_from_token(const Hdfs__Token *t, const Hdfs__RpcSasl__Auth *auth,
                                              const struct hy_hdfs_qops *qops)
{
    hy_cleanup_free char *user = hy_hdfs_base64(t->identifier.data, t->identifier.len);
    hy_cleanup_free char *password = hy_hdfs_base64(t->password.data, t->password.len);
    const struct hy_hdfs_digest_login login = {
        .user = user,
        .password = password,
        .protocol = auth->protocol ? auth->protocol : "",
        .server = auth->serverid ? auth->serverid : "",
    };

    return user && password ? hy_hdfs_sasl_digest_new(&login, qops) : NULL;
}

struct exchange {
    struct hy_hdfs_sock *sock;
    const struct hy_hdfs_rpc_credentials *credentials;
    const struct hy_hdfs_rpc_peer *peer;
    enum hy_hdfs_rpc_auth method;
    struct hy_hdfs_sasl *sasl;
    bool is_finished;
};

static int start_token(struct exchange *x, const Hdfs__RpcSasl__Auth *auth, const struct hy_hdfs_qops *qops,
                       struct hy_err *err)
{
    x->method = HY_HDFS_AUTH_TOKEN;
    x->sasl = digest_from_token(x->credentials->token, auth, qops);
    return x->sasl ? 0 : hy_err_oom(err);
}

static int start_kerberos(struct exchange *x, const Hdfs__RpcSasl__Auth *auth, const struct hy_hdfs_qops *qops,
                          struct hy_err *err)
{
    hy_cleanup_free char *principal = NULL;
    int rc = server_principal(auth, x->sock, x->peer, &principal, err);

    if (rc < 0)
        return rc;
    x->method = HY_HDFS_AUTH_KERBEROS;
    x->sasl = hy_hdfs_sasl_gssapi_new(principal, qops, err);
    return x->sasl ? 0 : err->code;
}

static int start_simple(struct exchange *x, struct hy_err *err)
{
    x->method = HY_HDFS_AUTH_SIMPLE;
    if (x->credentials->has_kerberos &&
        !hy_hdfs_conf_bool(x->peer->conf, "ipc.client.fallback-to-simple-auth-allowed", false))
        return hy_err_set(err, -EACCES,
                          "it has no authentication (SIMPLE), but hadoop.security.authentication is"
                          " kerberos here; set ipc.client.fallback-to-simple-auth-allowed to true to allow that");
    return 0;
}

static bool is_method(const Hdfs__RpcSasl__Auth *a, const char *method, const char *mechanism)
{
    return strcmp(a->method, method) == 0 && strcmp(a->mechanism, mechanism) == 0;
}

static int no_common_method(const struct exchange *x, const Hdfs__RpcSasl *m, struct hy_err *err)
{
    char methods[100] = "";

    for (size_t i = 0; i < m->n_auths; i++)
        snprintf(methods + strlen(methods), sizeof(methods) - strlen(methods), "%s%s", i ? ", " : "",
                 m->auths[i]->method);
    return hy_err_set(err, -EACCES, "it requires one of %s, and there is %s", methods,
                      x->credentials->has_kerberos ? "no token for it in $HADOOP_TOKEN_FILE_LOCATION"
                                                   : "only a token; set hadoop.security.authentication to kerberos in"
                                                     " core-site.xml (in $HADOOP_CONF_DIR) to use a ticket");
}

/* The first of the server's methods that we support. */
static int choose(struct exchange *x, const Hdfs__RpcSasl *m, const Hdfs__RpcSasl__Auth **ret, struct hy_err *err)
{
    struct hy_hdfs_qops qops;
    int rc = hy_hdfs_qops_parse(setting(x->peer, "hadoop.rpc.protection"), "hadoop.rpc.protection", &qops, err);

    for (size_t i = 0; rc == 0 && i < m->n_auths; i++) {
        const Hdfs__RpcSasl__Auth *a = *ret = m->auths[i];

        if (is_method(a, "TOKEN", "DIGEST-MD5") && x->credentials->token)
            return start_token(x, a, &qops, err);
        if (is_method(a, "KERBEROS", "GSSAPI") && x->credentials->has_kerberos && x->peer->principal)
            return start_kerberos(x, a, &qops, err);
        if (strcmp(a->method, "SIMPLE") == 0)
            return start_simple(x, err);
    }
    return rc < 0 ? rc : no_common_method(x, m, err);
}

/* ---- messages ---------------------------------------------------------------------- */

static int append_message(struct hy_buf *b, const Hdfs__RpcSasl *m)
{
    const size_t begin = b->len;
    int rc = hy_hdfs_rpc_begin_frame(b, CALL_SASL, -1, NULL, 0);

    if (rc == 0)
        rc = hy_hdfs_delimited_append(b, &m->base);
    if (rc == 0)
        hy_hdfs_rpc_end_frame(b, begin);
    return rc;
}

static int send_message(struct hy_hdfs_sock *sock, Hdfs__RpcSasl__State state, Hdfs__RpcSasl__Auth *method,
                        const struct hy_buf *token)
{
    Hdfs__RpcSasl m = HDFS__RPC_SASL__INIT;
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, MESSAGE_MAX);
    m.state = state;
    m.auths = &method;
    m.n_auths = method ? 1 : 0;
    if (token) {
        m.has_token = 1;
        m.token.data = (uint8_t *)hy_buf_bytes(token);
        m.token.len = token->len;
    }
    rc = append_message(&b, &m);
    return rc < 0 ? rc
                  : hy_hdfs_sock_send_all(sock, &(struct iovec){.iov_base = (void *)hy_buf_bytes(&b), .iov_len = b.len},
                                          1);
}

/* A refusal is an exception, whose class carries no information. */
static int refused(const struct exchange *x, const struct hy_hdfs_rpc_response *a, struct hy_err *err)
{
    static const char *const what[] = {
        [HY_HDFS_AUTH_SIMPLE] = "it refused",
        [HY_HDFS_AUTH_TOKEN] = "it rejected the token, which may be damaged or expired",
        [HY_HDFS_AUTH_KERBEROS] = "it rejected the Kerberos ticket",
    };
    int rc = hy_hdfs_exception(a->header->exceptionclassname, a->header->errormsg, err);

    if (rc == -EHOSTDOWN || rc == -EAGAIN)
        return rc;
    err->code = -EACCES;
    return hy_err_wrap(err, "%s", what[x->method]);
}

static int receive_message(const struct exchange *x, Hdfs__RpcSasl **ret, struct hy_err *err)
{
    struct hy_hdfs_rpc_response a;
    uint8_t *frame;
    size_t n;
    int rc = hy_hdfs_rpc_receive_frame(x->sock, MESSAGE_MAX, &frame, &n);

    if (rc == 0)
        rc = hy_hdfs_rpc_response_parse(frame, n, &a);
    if (rc < 0)
        return hy_err_sys(err, rc, "it does not respond");
    if (a.header->status != HDFS__RPC_RESPONSE_HEADER__STATUS__SUCCESS)
        rc = refused(x, &a, err);
    else if ((int32_t)a.header->callid != CALL_SASL || !(*ret = hdfs__rpc_sasl__unpack(NULL, a.n, a.body)))
        rc = hy_err_set(err, -EPROTO, "it sent an invalid authentication message");
    hy_hdfs_rpc_response_done(&a);
    return rc;
}

/* ---- the exchange ------------------------------------------------------------------ */

static int on_negotiate(struct exchange *x, const Hdfs__RpcSasl *m, struct hy_err *err)
{
    const Hdfs__RpcSasl__Auth *chosen = NULL;
    hy_cleanup_buf struct hy_buf response;
    Hdfs__RpcSasl__Auth method;
    int rc;

    hy_buf_init(&response, MESSAGE_MAX);
    if (x->sasl)
        return hy_err_set(err, -EPROTO, "it started the authentication a second time");
    rc = choose(x, m, &chosen, err);
    if (rc < 0)
        return rc;
    method = *chosen;
    method.has_challenge = 0;
    x->is_finished = !x->sasl; /* SIMPLE has no exchange */
    /* Without a first challenge there is an initial response: of Kerberos a token, of DIGEST-MD5 an empty one. */
    if (x->sasl && (chosen->has_challenge || x->method == HY_HDFS_AUTH_KERBEROS))
        rc = hy_hdfs_sasl_step(x->sasl, chosen->challenge.data, chosen->challenge.len, &response, err);
    if (rc < 0)
        return rc;
    rc = send_message(x->sock, HDFS__RPC_SASL__STATE__INITIATE, &method, x->sasl ? &response : NULL);
    return rc < 0 ? hy_err_sys(err, rc, "cannot send the response") : 0;
}

static int on_challenge(struct exchange *x, const Hdfs__RpcSasl *m, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf response;
    int rc;

    hy_buf_init(&response, MESSAGE_MAX);
    if (!x->sasl || !m->has_token)
        return hy_err_set(err, -EPROTO, "it sent an invalid challenge");
    rc = hy_hdfs_sasl_step(x->sasl, m->token.data, m->token.len, &response, err);
    if (rc <= 0)
        return rc;
    rc = send_message(x->sock, HDFS__RPC_SASL__STATE__RESPONSE, NULL, &response);
    return rc < 0 ? hy_err_sys(err, rc, "cannot send the response") : 0;
}

/* A server that reports success without a proof of its identity is rejected. */
static int on_success(struct exchange *x, const Hdfs__RpcSasl *m, struct hy_err *err)
{
    hy_cleanup_buf struct hy_buf response;
    int rc = 0;

    hy_buf_init(&response, MESSAGE_MAX);
    x->is_finished = true;
    if (!x->sasl)
        return start_simple(x, err);
    if (m->has_token)
        rc = hy_hdfs_sasl_step(x->sasl, m->token.data, m->token.len, &response, err);
    if (rc < 0)
        return rc;
    if (rc > 0 || !hy_hdfs_sasl_is_done(x->sasl))
        return hy_err_set(err, -EACCES, "it did not authenticate itself");
    return 0;
}

static int process_message(struct exchange *x, struct hy_err *err)
{
    hy_cleanup_hdfs_response Hdfs__RpcSasl *m = NULL;
    int rc = receive_message(x, &m, err);

    if (rc < 0)
        return rc;
    switch (m->state) {
    case HDFS__RPC_SASL__STATE__NEGOTIATE:
        return on_negotiate(x, m, err);
    case HDFS__RPC_SASL__STATE__CHALLENGE:
        return on_challenge(x, m, err);
    case HDFS__RPC_SASL__STATE__SUCCESS:
        return on_success(x, m, err);
    default:
        return hy_err_set(err, -EPROTO, "it sent an unknown authentication message");
    }
}

int hy_hdfs_rpc_authenticate(struct hy_hdfs_sock *sock, const struct hy_hdfs_rpc_credentials *l,
                             const struct hy_hdfs_rpc_peer *peer, enum hy_hdfs_rpc_auth *ret_method,
                             struct hy_hdfs_sasl **ret_sasl, struct hy_err *err)
{
    struct exchange x = {.sock = sock, .credentials = l, .peer = peer};
    int rc = send_message(sock, HDFS__RPC_SASL__STATE__NEGOTIATE, NULL, NULL);

    if (rc < 0)
        hy_err_sys(err, rc, "cannot send a request");
    for (int rounds = 0; rc == 0 && !x.is_finished; rounds++)
        rc = rounds < ROUNDS_MAX ? process_message(&x, err)
                                 : hy_err_set(err, -EPROTO, "the authentication does not end");
    if (rc == 0 && x.sasl && hy_hdfs_sasl_qop(x.sasl) != HY_HDFS_QOP_AUTH)
        *ret_sasl = hy_take(x.sasl);
    else
        *ret_sasl = NULL;
    *ret_method = x.method;
    hy_hdfs_sasl_free(x.sasl);
    return rc < 0 ? hy_err_wrap(err, "cannot authenticate to %s:%u", peer->host, peer->port) : 0;
}

/* ---- wrapped frames -------------------------------------------------------------------- */

int hy_hdfs_rpc_wrap(struct hy_hdfs_sasl *s, const uint8_t *bytes, size_t n, struct hy_buf *out)
{
    hy_cleanup_buf struct hy_buf token;
    int rc = 0;

    hy_buf_init(&token, hy_hdfs_sasl_wrap_max(s) + MESSAGE_MAX);
    while (rc == 0 && n) {
        const size_t part = n < hy_hdfs_sasl_wrap_max(s) ? n : hy_hdfs_sasl_wrap_max(s);
        Hdfs__RpcSasl m = HDFS__RPC_SASL__INIT;

        hy_buf_clear(&token);
        rc = hy_hdfs_sasl_wrap(s, bytes, part, &token);
        if (rc < 0)
            return rc;
        m.state = HDFS__RPC_SASL__STATE__WRAP;
        m.has_token = 1;
        m.token.data = (uint8_t *)hy_buf_bytes(&token);
        m.token.len = token.len;
        rc = append_message(out, &m);
        bytes += part;
        n -= part;
    }
    return rc;
}

int hy_hdfs_rpc_receive_wrapped(struct hy_hdfs_sasl *s, struct hy_hdfs_sock *sock, size_t max, struct hy_buf *in)
{
    hy_cleanup_hdfs_response Hdfs__RpcSasl *m = NULL;
    struct hy_hdfs_rpc_response a;
    uint8_t *frame;
    size_t n;
    int64_t plain;
    int rc = hy_hdfs_rpc_receive_frame(sock, max, &frame, &n);

    if (rc == 0)
        rc = hy_hdfs_rpc_response_parse(frame, n, &a);
    if (rc < 0)
        return rc;
    if (a.header->status == HDFS__RPC_RESPONSE_HEADER__STATUS__SUCCESS && (int32_t)a.header->callid == CALL_SASL)
        m = hdfs__rpc_sasl__unpack(NULL, a.n, a.body);
    hy_hdfs_rpc_response_done(&a);
    if (!m || m->state != HDFS__RPC_SASL__STATE__WRAP || !m->has_token)
        return -EPROTO;
    plain = hy_hdfs_sasl_unwrap(s, m->token.data, m->token.len);
    return plain < 0 ? (int)plain : hy_buf_append(in, m->token.data, (size_t)plain);
}
