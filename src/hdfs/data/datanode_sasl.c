/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Delimited messages of type DataTransferEncryptorMessage:
 *
 *     client    0xDEADBEEF  an empty message
 *     DataNode  a DIGEST-MD5 challenge
 *     client    the response, and for privacy the supported ciphers
 *     DataNode  its proof; optionally a cipher, with a key (wrapped) and IV for each direction
 *
 * Then the operation follows, encrypted by AES, or wrapped by SASL, or plain.
 *
 * The password is the block's token; or, when the cluster encrypts all data, a key
 * that the NameNode gives to authenticated clients (dfs.encrypt.data.transfer).
 */
#include "hdfs/data/datanode_sasl.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/mem.h"
#include "hdfs/security/aes.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode.h"
#include "hdfs/rpc/rpc.h"
#include "hdfs/security/sasl.h"
#include "hdfs/security/security_layer.h"

#define MESSAGE_MAX (1u << 20)
#define PRIVILEGED 1024 /* ports below it belong to root: trusted without authentication */
#define AES_CTR 2       /* CipherSuite AES/CTR/NoPadding */

struct login {
    char *user, *password;
    struct hy_hdfs_qops qops;
    bool is_data_key; /* not the block's token */
};

static void login_done(struct login *l)
{
    free(l->user);
    if (l->password)
        explicit_bzero(l->password, strlen(l->password));
    free(l->password);
}

/* ---- the data encryption key ------------------------------------------------------------- */

struct hy_hdfs_data_key {
    pthread_mutex_t lock;
    Hdfs__GetDataEncryptionKeyResponse *response; /* the current one; or NULL */
};

struct hy_hdfs_data_key *hy_hdfs_data_key_new(void)
{
    struct hy_hdfs_data_key *k = hy_calloc(1, sizeof(*k));

    if (k)
        pthread_mutex_init(&k->lock, NULL);
    return k;
}

void hy_hdfs_data_key_free(struct hy_hdfs_data_key *k)
{
    if (!k)
        return;
    hy_hdfs_free_response(&k->response);
    pthread_mutex_destroy(&k->lock);
    free(k);
}

static uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t); /* comparable with the NameNode's clock */
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void drop_key(struct hy_hdfs_data_key *k)
{
    pthread_mutex_lock(&k->lock);
    hy_hdfs_free_response(&k->response);
    k->response = NULL;
    pthread_mutex_unlock(&k->lock);
}

/* With the lock held. */
static int get_key(struct hy_hdfs_cluster *c, const Hdfs__DataEncryptionKey **ret, struct hy_err *err)
{
    Hdfs__Nothing request = HDFS__NOTHING__INIT;
    struct hy_hdfs_data_key *k = c->data_key;
    int rc;

    if (k->response && k->response->dataencryptionkey->expirydate < now_ms()) {
        hy_hdfs_free_response(&k->response);
        k->response = NULL;
    }
    if (!k->response) {
        hy_cleanup_hdfs_response Hdfs__GetDataEncryptionKeyResponse *response = NULL;

        rc = hy_hdfs_call(c, "getDataEncryptionKey", &request.base, &hdfs__get_data_encryption_key_response__descriptor,
                          &response, err);
        if (rc < 0)
            return rc;
        if (!response->dataencryptionkey)
            return hy_err_set(err, -EPROTO, "the NameNode requires data encryption, but sent no key");
        k->response = hy_take(response);
    }
    *ret = k->response->dataencryptionkey;
    return 0;
}

/* ---- credentials -------------------------------------------------------------------- */

static int check_login(const struct login *l, struct hy_err *err)
{
    return l->user && l->password ? 0 : hy_err_oom(err);
}

static int login_by_key(struct login *l, struct hy_hdfs_cluster *c, struct hy_err *err)
{
    const Hdfs__DataEncryptionKey *key = NULL;
    hy_cleanup_free char *nonce = NULL;
    int rc;

    pthread_mutex_lock(&c->data_key->lock);
    rc = get_key(c, &key, err);
    if (rc == 0 && (nonce = hy_hdfs_base64(key->nonce.data, key->nonce.len))) {
        l->user = hy_asprintf("%u %s %s", key->keyid, key->blockpoolid, nonce);
        l->password = hy_hdfs_base64(key->encryptionkey.data, key->encryptionkey.len);
    }
    pthread_mutex_unlock(&c->data_key->lock);
    l->is_data_key = true;
    l->qops = (struct hy_hdfs_qops){.all = {HY_HDFS_QOP_PRIVACY}, .count = 1};
    return rc < 0 ? rc : check_login(l, err);
}

static int login_by_token(struct login *l, const Hdfs__Token *token, const char *protection, struct hy_err *err)
{
    int rc = hy_hdfs_qops_parse(protection, "dfs.data.transfer.protection", &l->qops, err);

    if (rc < 0)
        return rc;
    l->user = hy_hdfs_base64(token->identifier.data, token->identifier.len);
    l->password = hy_hdfs_base64(token->password.data, token->password.len);
    return check_login(l, err);
}

/* 1, or 0 when no authentication is required, or -Exxx. */
static int find_login(struct login *l, const struct hy_hdfs_datanode *d, const Hdfs__Token *token, struct hy_err *err)
{
    const char *protection = hy_hdfs_conf_get(d->cluster->conf, "dfs.data.transfer.protection");
    const Hdfs__ServerDefaults *defaults;
    int rc = hy_hdfs_defaults(d->cluster, &defaults, err);

    if (rc < 0)
        return rc;
    if (defaults->encryptdatatransfer)
        rc = login_by_key(l, d->cluster, err);
    else if (protection && token && token->identifier.len && d->id->xferport >= PRIVILEGED)
        rc = login_by_token(l, token, protection, err);
    else
        return 0;
    return rc < 0 ? rc : 1;
}

/* ---- messages ---------------------------------------------------------------------- */

static bool offers_aes_cipher(const struct hy_hdfs_datanode *d, const struct login *l)
{
    const char *suites = hy_hdfs_conf_get(d->cluster->conf, "dfs.encrypt.data.transfer.cipher.suites");

    return suites && strcasecmp(suites, "AES/CTR/NoPadding") == 0 && hy_hdfs_qops_has(&l->qops, HY_HDFS_QOP_PRIVACY);
}

/* The first message follows a magic number. */
static int send_message(struct hy_hdfs_datanode *d, bool is_first, const struct hy_buf *response, bool offers_aes)
{
    Hdfs__DataTransferEncryptorMessage m = HDFS__DATA_TRANSFER_ENCRYPTOR_MESSAGE__INIT;
    Hdfs__CipherOption aes = HDFS__CIPHER_OPTION__INIT, *options = &aes;
    hy_cleanup_buf struct hy_buf b;
    int rc = 0;

    hy_buf_init(&b, MESSAGE_MAX);
    aes.suite = AES_CTR;
    m.status = HDFS__DATA_TRANSFER_ENCRYPTOR_MESSAGE__ENCRYPTOR_STATUS__OK;
    m.has_payload = 1;
    m.payload.data = (uint8_t *)hy_buf_bytes(response);
    m.payload.len = response->len;
    m.cipheroption = &options;
    m.n_cipheroption = offers_aes ? 1 : 0;
    if (is_first)
        rc = hy_buf_append(&b, "\xde\xad\xbe\xef", 4);
    if (rc == 0)
        rc = hy_hdfs_delimited_append(&b, &m.base);
    if (rc < 0)
        return rc;
    return hy_hdfs_sock_send_all(&d->sock, &(struct iovec){.iov_base = (void *)hy_buf_bytes(&b), .iov_len = b.len}, 1);
}

/* An expired token is a separate error: the NameNode issues a new one. */
static bool is_token_error(const Hdfs__DataTransferEncryptorMessage *m)
{
    return m->accesstokenerror || (m->message && strstr(m->message, "InvalidToken"));
}

static int receive_message(struct hy_hdfs_datanode *d, Hdfs__DataTransferEncryptorMessage **ret, struct hy_err *err)
{
    hy_cleanup_hdfs_response Hdfs__DataTransferEncryptorMessage *m = NULL;
    int rc = hy_hdfs_datanode_receive(d, &hdfs__data_transfer_encryptor_message__descriptor, &m);

    if (rc < 0)
        return hy_err_sys(err, rc, "no response; its dfs.data.transfer.protection may differ");
    if (m->status == HDFS__DATA_TRANSFER_ENCRYPTOR_MESSAGE__ENCRYPTOR_STATUS__OK) {
        *ret = hy_take(m);
        return 0;
    }
    if (m->status == HDFS__DATA_TRANSFER_ENCRYPTOR_MESSAGE__ENCRYPTOR_STATUS__UNKNOWN_KEY)
        rc = -EAGAIN;
    else
        rc = is_token_error(m) ? -EKEYEXPIRED : -EACCES;
    return hy_err_set(err, rc, "it refused: %s", m->message && *m->message ? m->message : "no reason given");
}

/* ---- security layer ------------------------------------------------------------------------ */

/* The cipher of one direction; its key is wrapped. */
static struct hy_hdfs_aes *make_aes(struct hy_hdfs_sasl *s, ProtobufCBinaryData *key, const ProtobufCBinaryData *iv,
                                    struct hy_err *err)
{
    const int64_t n = hy_hdfs_sasl_unwrap(s, key->data, key->len);

    if (n < 0 || iv->len != HY_HDFS_AES_IV_SIZE) {
        hy_err_set(err, -EPROTO, "it sent an invalid key");
        return NULL;
    }
    return hy_hdfs_aes_new(key->data, (size_t)n, iv->data, err);
}

/* Keys are named from the view of the DataNode: "in" is what we send. */
static int secure_with_aes(struct hy_hdfs_datanode *d, struct hy_hdfs_sasl *s, Hdfs__CipherOption *o,
                           struct hy_err *err)
{
    struct hy_hdfs_aes *out, *in = NULL;

    if (o->suite != AES_CTR)
        return hy_err_set(err, -ENOTSUP, "it chose an unknown cipher (%u)", o->suite);
    out = make_aes(s, &o->inkey, &o->iniv, err);
    if (out)
        in = make_aes(s, &o->outkey, &o->outiv, err);
    if (in && (d->sock.layer = hy_hdfs_security_layer_aes_new(in, out)))
        return 0;
    hy_hdfs_aes_free(in);
    hy_hdfs_aes_free(out);
    return in ? hy_err_oom(err) : err->code;
}

/* Enables the negotiated security layer. Takes `s`. */
static int add_security_layer(struct hy_hdfs_datanode *d, struct hy_hdfs_sasl *s,
                              const Hdfs__DataTransferEncryptorMessage *m, struct hy_err *err)
{
    int rc = 0;

    if (hy_hdfs_sasl_qop(s) == HY_HDFS_QOP_PRIVACY && m->n_cipheroption) {
        rc = secure_with_aes(d, s, m->cipheroption[0], err);
    } else if (hy_hdfs_sasl_qop(s) != HY_HDFS_QOP_AUTH) {
        d->sock.layer = hy_hdfs_security_layer_sasl_new(s);
        if (d->sock.layer)
            return 0;
        rc = hy_err_oom(err);
    }
    hy_hdfs_sasl_free(s);
    return rc;
}

/* Receives the challenge, responds, and checks the proof. */
static int authenticate(struct hy_hdfs_datanode *d, struct hy_hdfs_sasl *s, bool offers_aes,
                        Hdfs__DataTransferEncryptorMessage **ret, struct hy_err *err)
{
    hy_cleanup_hdfs_response Hdfs__DataTransferEncryptorMessage *challenge = NULL;
    hy_cleanup_buf struct hy_buf response;
    int rc;

    hy_buf_init(&response, MESSAGE_MAX);
    rc = send_message(d, true, &response, false);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot send a request");
    rc = receive_message(d, &challenge, err);
    if (rc == 0)
        rc = hy_hdfs_sasl_step(s, challenge->payload.data, challenge->payload.len, &response, err);
    if (rc < 0)
        return rc;
    rc = send_message(d, false, &response, offers_aes);
    if (rc < 0)
        return hy_err_sys(err, rc, "cannot send the response");
    rc = receive_message(d, ret, err);
    if (rc == 0)
        rc = hy_hdfs_sasl_step(s, (*ret)->payload.data, (*ret)->payload.len, &response, err);
    if (rc == 0 && !hy_hdfs_sasl_is_done(s))
        rc = hy_err_set(err, -EACCES, "it did not authenticate itself");
    return rc;
}

static int handshake(struct hy_hdfs_datanode *d, const struct login *l, struct hy_err *err)
{
    const struct hy_hdfs_digest_login login = {
        .user = l->user, .password = l->password, .protocol = "hdfs", .server = "0"};
    hy_cleanup_hdfs_response Hdfs__DataTransferEncryptorMessage *last = NULL;
    struct hy_hdfs_sasl *s = hy_hdfs_sasl_digest_new(&login, &l->qops);
    int rc;

    if (!s)
        return hy_err_oom(err);
    rc = authenticate(d, s, offers_aes_cipher(d, l), &last, err);
    if (rc == 0)
        return add_security_layer(d, s, last, err);
    hy_hdfs_sasl_free(s);
    if (rc == -EAGAIN && l->is_data_key)
        drop_key(d->cluster->data_key);
    return rc;
}

int hy_hdfs_datanode_secure(struct hy_hdfs_datanode *d, const Hdfs__Token *token, struct hy_err *err)
{
    struct login l = {0};
    char name[300];
    int rc;

    if (!d->cluster->data_key) /* in tests without a NameNode */
        return 0;
    rc = find_login(&l, d, token, err);
    if (rc > 0 && (rc = handshake(d, &l, err)) == 0)
        rc = 1;
    else if (rc < 0)
        hy_err_wrap(err, "cannot authenticate to the DataNode %s", hy_hdfs_datanode_name(d->id, name, sizeof(name)));
    login_done(&l);
    return rc;
}
