/* SPDX-License-Identifier: Apache-2.0 */
#include "hdfs/data/datanode.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode_sasl.h"
#include "hdfs/rpc/rpc.h"

#define VERSION 28
#define PROTOCOL "org.apache.hadoop.hdfs.protocol.ClientDatanodeProtocol"
#define MESSAGE_MAX (1u << 20)
#define CONNECT_MS 15000
#define CACHE_MAX 16
#define CACHE_MS 2500 /* a DataNode closes connections that are idle for 4 s */

static const char *host_of(const struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id)
{
    const bool by_name = c && hy_hdfs_conf_bool(c->conf, "dfs.client.use.datanode.hostname", false);

    return by_name ? id->hostname : id->ipaddr;
}

const char *hy_hdfs_datanode_name(const Hdfs__DatanodeID *id, char *out, size_t size)
{
    snprintf(out, size, "%s:%u", id->ipaddr, id->xferport);
    return out;
}

/* ---- cache of idle connections ---------------------------------- */

static struct {
    pthread_mutex_t lock;
    struct {
        struct hy_hdfs_datanode *dn;
        int64_t since;
    } all[CACHE_MAX];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

void hy_hdfs_datanode_forked(void)
{
    pthread_mutex_init(&cache.lock, NULL);
    memset(cache.all, 0, sizeof(cache.all));
}

void hy_hdfs_datanode_done(void)
{
    pthread_mutex_lock(&cache.lock);
    for (size_t i = 0; i < CACHE_MAX; i++)
        hy_hdfs_datanode_close(hy_take(cache.all[i].dn));
    pthread_mutex_unlock(&cache.lock);
}

static struct hy_hdfs_datanode *take_cached(const struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id)
{
    const int64_t now = hy_clock_ms();
    struct hy_hdfs_datanode *found = NULL;

    pthread_mutex_lock(&cache.lock);
    for (size_t i = 0; i < CACHE_MAX; i++) {
        struct hy_hdfs_datanode *d = cache.all[i].dn;

        if (!d)
            continue;
        if (now - cache.all[i].since > CACHE_MS) {
            hy_hdfs_datanode_close(d);
            cache.all[i].dn = NULL;
        } else if (!found && d->cluster == c && strcmp(d->id->datanodeuuid, id->datanodeuuid) == 0 &&
                   d->id->xferport == id->xferport) {
            found = d;
            cache.all[i].dn = NULL;
        }
    }
    pthread_mutex_unlock(&cache.lock);
    return found;
}

void hy_hdfs_datanode_release(struct hy_hdfs_datanode *d)
{
    size_t oldest = 0;

    d->is_reused = true;
    pthread_mutex_lock(&cache.lock);
    for (size_t i = 0; i < CACHE_MAX && cache.all[oldest].dn; i++)
        if (!cache.all[i].dn || cache.all[i].since < cache.all[oldest].since)
            oldest = i;
    hy_hdfs_datanode_close(cache.all[oldest].dn);
    cache.all[oldest].dn = d;
    cache.all[oldest].since = hy_clock_ms();
    pthread_mutex_unlock(&cache.lock);
}

/* ---- one connection ---------------------------------------------------------------- */

static Hdfs__DatanodeID *copy_id(const Hdfs__DatanodeID *id)
{
    const size_t n = hdfs__datanode_id__get_packed_size(id);
    hy_cleanup_free uint8_t *bytes = hy_malloc(n ? n : 1);

    return bytes ? hdfs__datanode_id__unpack(NULL, hdfs__datanode_id__pack(id, bytes), bytes) : NULL;
}

static struct hy_hdfs_datanode *dn_new(struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id)
{
    struct hy_hdfs_datanode *d = hy_calloc(1, sizeof(*d));

    if (!d || !(d->id = copy_id(id))) {
        free(d);
        return NULL;
    }
    d->cluster = c;
    d->sock.fd = -1;
    return d;
}

int hy_hdfs_datanode_open_local(struct hy_hdfs_datanode **ret, struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id,
                                const char *path, int timeout_ms)
{
    struct hy_hdfs_datanode *d = dn_new(c, id);
    int rc = d ? hy_hdfs_sock_connect_local(&d->sock, path, timeout_ms) : -ENOMEM;

    if (rc < 0)
        hy_hdfs_datanode_close(d);
    else
        *ret = d;
    return rc;
}

static int connect_to(struct hy_hdfs_datanode **ret, struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id,
                      const Hdfs__Token *token, int timeout_ms, struct hy_err *err)
{
    struct hy_hdfs_datanode *d = dn_new(c, id);
    int rc;

    if (!d)
        return hy_err_set(err, -ENOMEM, "out of memory for a connection to a DataNode");
    rc = hy_hdfs_sock_connect(&d->sock, host_of(c, id), id->xferport, timeout_ms < CONNECT_MS ? timeout_ms : CONNECT_MS,
                              timeout_ms, err);
    if (rc < 0)
        hy_err_wrap(err, "DataNode");
    else
        rc = hy_hdfs_datanode_secure(d, token, err);
    if (rc < 0) {
        hy_hdfs_datanode_close(d);
        return rc;
    }
    d->may_insist = rc == 0 && token && token->identifier.len;
    *ret = d;
    return 0;
}

int hy_hdfs_datanode_open(struct hy_hdfs_datanode **ret, struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id,
                          const Hdfs__Token *token, bool is_new, int timeout_ms, struct hy_err *err)
{
    struct hy_hdfs_datanode *d = is_new ? NULL : take_cached(c, id);
    int rc;

    if (d) {
        d->sock.timeout_ms = timeout_ms;
        *ret = d;
        return 0;
    }
    rc = connect_to(ret, c, id, token, timeout_ms, err);
    if (rc == -EAGAIN) /* the data encryption key has changed */
        rc = connect_to(ret, c, id, token, timeout_ms, err);
    return rc;
}

void hy_hdfs_datanode_close(struct hy_hdfs_datanode *d)
{
    if (!d)
        return;
    hy_hdfs_sock_close(&d->sock);
    hdfs__datanode_id__free_unpacked(d->id, NULL);
    free(d);
}

int hy_hdfs_datanode_request(struct hy_hdfs_datanode *d, enum hy_hdfs_datanode_op op, const ProtobufCMessage *request)
{
    const uint8_t head[] = {0, VERSION, (uint8_t)op};
    hy_cleanup_buf struct hy_buf b;
    int rc;

    hy_buf_init(&b, MESSAGE_MAX);
    rc = hy_buf_append(&b, head, sizeof(head));
    if (rc == 0)
        rc = hy_hdfs_delimited_append(&b, request);
    if (rc < 0)
        return rc;
    return hy_hdfs_sock_send_all(&d->sock, &(struct iovec){.iov_base = (void *)hy_buf_bytes(&b), .iov_len = b.len}, 1);
}

/* Byte by byte: must not consume what follows the message. */
static int receive_length(struct hy_hdfs_datanode *d, uint32_t *ret)
{
    uint8_t bytes[5];

    for (size_t n = 0; n < sizeof(bytes); n++) {
        int rc = hy_hdfs_sock_recv_all(&d->sock, bytes + n, 1);

        if (rc < 0)
            return rc;
        rc = hy_hdfs_delimited_length(bytes, n + 1, ret);
        if (rc != 0)
            return rc < 0 ? rc : 0;
    }
    return -EPROTO;
}

int hy_hdfs_datanode_receive(struct hy_hdfs_datanode *d, const ProtobufCMessageDescriptor *type, void *ret_message)
{
    hy_cleanup_free uint8_t *bytes = NULL;
    ProtobufCMessage *m;
    uint32_t n;
    int rc = receive_length(d, &n);

    if (rc < 0)
        return rc;
    if (n > MESSAGE_MAX)
        return -EPROTO;
    bytes = hy_malloc(n ? n : 1);
    if (!bytes)
        return -ENOMEM;
    rc = hy_hdfs_sock_recv_all(&d->sock, bytes, n);
    if (rc < 0)
        return rc;
    m = protobuf_c_message_unpack(type, NULL, n, bytes);
    if (!m)
        return -EPROTO;
    *(ProtobufCMessage **)ret_message = m;
    return 0;
}

static int code_of(Hdfs__Status status)
{
    switch (status) {
    case HDFS__STATUS__SUCCESS:
        return 0;
    case HDFS__STATUS__ERROR_ACCESS_TOKEN:
        return -EKEYEXPIRED;
    case HDFS__STATUS__ERROR_CHECKSUM:
        return -EBADMSG;
    case HDFS__STATUS__ERROR_EXISTS:
        return -EEXIST;
    default:
        return -EREMOTEIO;
    }
}

int hy_hdfs_datanode_response(struct hy_hdfs_datanode *d, Hdfs__BlockOpResponse **ret, struct hy_err *err)
{
    Hdfs__BlockOpResponse *response;
    char name[300];
    int rc = hy_hdfs_datanode_receive(d, &hdfs__block_op_response__descriptor, &response);

    if (rc == -ECONNRESET && d->may_insist && !d->is_reused)
        return hy_err_set(err, rc,
                          "the DataNode %s closed the connection; if it requires authentication, set"
                          " dfs.data.transfer.protection in hdfs-site.xml (in $HADOOP_CONF_DIR)",
                          hy_hdfs_datanode_name(d->id, name, sizeof(name)));
    if (rc < 0)
        return hy_err_sys(err, rc, "the DataNode %s does not respond",
                          hy_hdfs_datanode_name(d->id, name, sizeof(name)));
    rc = code_of(response->status);
    if (rc < 0) {
        hy_err_set(err, rc, "the DataNode %s refused: %s", hy_hdfs_datanode_name(d->id, name, sizeof(name)),
                   response->message && *response->message ? response->message : "no reason given");
        if (!response->firstbadlink || !*response->firstbadlink) {
            hdfs__block_op_response__free_unpacked(response, NULL);
            response = NULL;
        }
    }
    *ret = response; /* also when a later DataNode of a pipeline failed: it names that one */
    return rc;
}

/* ---- RPC port ---------------------------------------------------------------- */

static int parse_length(const struct hy_hdfs_rpc_response *a, uint64_t *ret, struct hy_err *err)
{
    Hdfs__GetReplicaVisibleLengthResponse *response;

    if (a->header->status != HDFS__RPC_RESPONSE_HEADER__STATUS__SUCCESS)
        return hy_hdfs_exception(a->header->exceptionclassname, a->header->errormsg, err);
    response = hdfs__get_replica_visible_length_response__unpack(NULL, a->n, a->body);
    if (!response)
        return hy_err_set(err, -EPROTO, "invalid response of a DataNode");
    *ret = response->length;
    hdfs__get_replica_visible_length_response__free_unpacked(response, NULL);
    if (*ret == UINT64_MAX) /* -1: restarted, the common length of the replicas is unknown */
        return hy_err_set(err, -EAGAIN, "the replica is waiting for recovery");
    return 0;
}

int hy_hdfs_datanode_visible_length(struct hy_hdfs_cluster *c, const Hdfs__DatanodeID *id,
                                    const Hdfs__ExtendedBlock *block, const Hdfs__Token *token, uint64_t *ret,
                                    struct hy_err *err)
{
    uint8_t client_id[HY_HDFS_RPC_CLIENT_ID_SIZE];
    const struct hy_hdfs_rpc_peer peer = {
        .host = host_of(c, id),
        .port = id->ipcport,
        .protocol = PROTOCOL,
        .user = c->user,
        .client_id = client_id,
        .conf = c->conf,
        .token = token && token->identifier.len ? token : NULL,
        .principal = "dfs.datanode.kerberos.principal",
    };
    Hdfs__GetReplicaVisibleLengthRequest request = HDFS__GET_REPLICA_VISIBLE_LENGTH_REQUEST__INIT;
    const struct hy_hdfs_rpc_call call = {.method = "getReplicaVisibleLength", .request = &request.base};
    struct hy_hdfs_rpc_response response;
    struct hy_hdfs_rpc *rpc;
    int rc;

    if (getrandom(client_id, sizeof(client_id), 0) != sizeof(client_id))
        return hy_err_sys(err, -errno, "no random numbers");
    rpc = hy_hdfs_rpc_connect(&peer, err);
    if (!rpc)
        return err->code;
    request.block = (Hdfs__ExtendedBlock *)block;
    rc = hy_hdfs_rpc_invoke(rpc, &call, &response);
    hy_hdfs_rpc_unref(rpc);
    if (rc < 0)
        return hy_err_sys(err, rc, "the DataNode %s:%u does not respond", peer.host, peer.port);
    rc = parse_length(&response, ret, err);
    hy_hdfs_rpc_response_done(&response);
    return rc;
}
