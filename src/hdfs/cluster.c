/* SPDX-License-Identifier: Apache-2.0 */
/* The clusters of this process, and calls to their NameNodes with retries and failover. */
#include "hdfs/cluster.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"
#include "fs/fs.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode_sasl.h"
#include "hdfs/rpc/rpc.h"
#include "hdfs/sock.h"

#define PORT 8020
#define PROTOCOL "org.apache.hadoop.hdfs.protocol.ClientProtocol"
#define NODES_MAX 16
#define RETRY_KNOWN_MS 120000 /* for NameNodes that have responded before */
#define WAIT_MIN_MS 100
#define WAIT_MAX_MS 2000
#define PATH_PARTS_MAX 1024u
#define PATH_BYTES_MAX 24576u

struct node {
    char *host;
    unsigned port;
};

struct hy_hdfs_namenodes {
    struct node nodes[NODES_MAX];
    size_t count;
    const char *nameservice; /* or NULL */
    char *real_user;
    uint8_t client_id[HY_HDFS_RPC_CLIENT_ID_SIZE];

    pthread_mutex_t lock; /* protects the fields below */
    size_t active;        /* the current one */
    struct hy_hdfs_rpc *rpc; /* connection to it; or NULL */
    bool has_responded;
    int32_t next_call;
    Hdfs__GetServerDefaultsResponse *defaults;
};

/* ---- addresses and users ------------------------------------------------------------------- */

/* "host", "host:port", "[::1]:port" */
static int add_node(struct hy_hdfs_namenodes *n, const char *address, struct hy_err *err)
{
    const char *host = address, *end = strrchr(address, ':');
    size_t length = strcspn(address, ":");
    uint64_t port = PORT;

    if (*address == '[') {
        host = address + 1;
        length = strcspn(host, "]");
        end = host[length] && host[length + 1] == ':' ? host + length + 1 : NULL;
    }
    if (end && (hy_parse_u64(end + 1, &port) < 0 || port == 0 || port > 65535))
        return hy_err_set(err, -EINVAL, "invalid NameNode address '%s': expected HOST:PORT", address);
    if (length == 0)
        return hy_err_set(err, -EINVAL, "invalid NameNode address '%s': it has no host", address);
    if (n->count == NODES_MAX)
        return hy_err_set(err, -E2BIG, "more than %d NameNodes are configured", NODES_MAX);
    n->nodes[n->count] = (struct node){.host = hy_strndup(host, length), .port = (unsigned)port};
    if (!n->nodes[n->count].host)
        return hy_err_oom(err);
    n->count++;
    return 0;
}

static const char *setting(const struct hy_hdfs_conf *conf, const char *key, const char *service, const char *id)
{
    char name[512];

    snprintf(name, sizeof(name), "%s.%s%s%s", key, service, id ? "." : "", id ? id : "");
    return hy_hdfs_conf_get(conf, name);
}

/* dfs.ha.namenodes.SERVICE = nn1,nn2 and dfs.namenode.rpc-address.SERVICE.nn1 = HOST:PORT */
static int add_service(struct hy_hdfs_namenodes *n, const struct hy_hdfs_conf *conf, const char *service,
                       const char *ids, struct hy_err *err)
{
    hy_cleanup_free char *copy = hy_strdup(ids);
    char *rest = copy, *id;
    int rc = copy ? 0 : hy_err_oom(err);

    while (rc == 0 && (id = strtok_r(rest, ", \t\n", &rest))) {
        const char *address = setting(conf, "dfs.namenode.rpc-address", service, id);

        rc = address ? add_node(n, address, err)
                     : hy_err_set(err, -EINVAL, "hdfs-site.xml has no dfs.namenode.rpc-address.%s.%s", service, id);
    }
    return rc;
}

static int find_nodes(struct hy_hdfs_namenodes *n, const struct hy_hdfs_conf *conf, const char *authority,
                      struct hy_err *err)
{
    const char *ids = setting(conf, "dfs.ha.namenodes", authority, NULL);
    const char *one = setting(conf, "dfs.namenode.rpc-address", authority, NULL);

    if (ids) {
        n->nameservice = authority;
        return add_service(n, conf, authority, ids, err);
    }
    return add_node(n, one ? one : authority, err);
}

/* The address after "hdfs://" in fs.defaultFS. */
static int default_authority(const struct hy_hdfs_conf *conf, char **ret, struct hy_err *err)
{
    const char *url = hy_hdfs_conf_get(conf, "fs.defaultFS");
    const char *start = url ? strstr(url, "://") : NULL;

    if (!start || strcspn(start + 3, "/") == 0 || (strncmp(url, "hdfs:", 5) != 0 && strncmp(url, "hopsfs:", 7) != 0))
        return hy_err_set(err, -EINVAL,
                          "hdfs:/// is the cluster of fs.defaultFS, which %s; use hdfs://NAMENODE/, or set"
                          " HADOOP_CONF_DIR to the directory of the cluster's core-site.xml",
                          url ? "is not an HDFS URL" : "is not set");
    *ret = hy_strndup(start + 3, strcspn(start + 3, "/"));
    return *ret ? 0 : hy_err_oom(err);
}

static char *current_user(void)
{
    const char *name = getenv("HADOOP_USER_NAME");
    struct passwd entry, *found = NULL;
    char buffer[4096];

    if (name && *name)
        return hy_strdup(name);
    if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found)
        return hy_strdup(found->pw_name);
    return hy_asprintf("%u", (unsigned)geteuid());
}

/* Part of the key of a cluster: another ticket or token may be another identity of the same user. */
static char *credentials_key(void)
{
    const char *ticket = getenv("KRB5CCNAME"), *tokens = getenv("HADOOP_TOKEN_FILE_LOCATION");

    return hy_asprintf("%s\n%s", ticket ? ticket : "", tokens ? tokens : "");
}

/* ---- all clusters of this process -------------------------------------------------- */

struct known {
    struct known *next;
    struct hy_hdfs_cluster cluster;
    char *authority, *dir; /* dir: of the settings; or NULL */
    char *credentials;
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct known *all;

void hy_hdfs_clusters_forked(void)
{
    pthread_mutex_init(&all_lock, NULL);
    all = NULL; /* their locks may be held by threads of the parent */
}

static void known_free(struct known *k)
{
    struct hy_hdfs_namenodes *n = k->cluster.namenodes;

    for (size_t i = 0; n && i < n->count; i++)
        free(n->nodes[i].host);
    if (n) {
        hy_hdfs_rpc_unref(n->rpc);
        hy_hdfs_free_response(&n->defaults);
    }
    free(n ? n->real_user : NULL);
    free(n);
    free((char *)k->cluster.name);
    free((char *)k->cluster.user);
    free((char *)k->cluster.client_name);
    hy_hdfs_conf_free((struct hy_hdfs_conf *)k->cluster.conf);
    hy_hdfs_data_key_free(k->cluster.data_key);
    free(k->authority);
    free(k->dir);
    free(k->credentials);
    free(k);
}

void hy_hdfs_clusters_done(void)
{
    pthread_mutex_lock(&all_lock);
    for (struct known *k = hy_take(all), *next; k; k = next) {
        next = k->next;
        known_free(k);
    }
    pthread_mutex_unlock(&all_lock);
}

static int fill(struct known *k, const char *user, struct hy_err *err)
{
    struct hy_hdfs_cluster *c = &k->cluster;
    struct hy_hdfs_namenodes *n = c->namenodes = hy_calloc(1, sizeof(*n));
    const char *proxied = getenv("HADOOP_PROXY_USER");

    if (!n)
        return hy_err_oom(err);
    pthread_mutex_init(&n->lock, NULL);
    c->data_key = hy_hdfs_data_key_new();
    if (getrandom(n->client_id, sizeof(n->client_id), 0) != sizeof(n->client_id))
        return hy_err_sys(err, -errno, "no random numbers");
    c->conf = hy_hdfs_conf_load(k->dir, err);
    if (!c->conf)
        return err->code;
    c->user = hy_strdup(proxied && *proxied ? proxied : user);
    n->real_user = proxied && *proxied ? hy_strdup(user) : NULL;
    c->name = hy_asprintf("hdfs://%s", k->authority);
    c->client_name = hy_asprintf("hopyard_%016llx_%d", (unsigned long long)hy_get_le(n->client_id, 8), (int)getpid());
    if (!c->user || !c->name || !c->client_name || !c->data_key)
        return hy_err_oom(err);
    return find_nodes(n, c->conf, k->authority, err);
}

static struct known *lookup(const char *authority, const char *user, const char *credentials, const char *dir)
{
    for (struct known *k = all; k; k = k->next) {
        const char *real_user = k->cluster.namenodes->real_user ? k->cluster.namenodes->real_user : k->cluster.user;

        if (strcmp(k->authority, authority) == 0 && strcmp(real_user, user) == 0 &&
            strcmp(k->credentials, credentials) == 0 && !k->dir == !dir && (!dir || strcmp(k->dir, dir) == 0))
            return k;
    }
    return NULL;
}

/* With the lock held. Takes `authority` and `dir`. */
static struct known *find_or_make(char *authority, char *dir, struct hy_err *err)
{
    hy_cleanup_free char *user = current_user(), *credentials = credentials_key();
    struct known *k = user && credentials ? lookup(authority, user, credentials, dir) : NULL;

    if (k || !(k = user && credentials ? hy_calloc(1, sizeof(*k)) : NULL)) {
        free(authority);
        free(dir);
        if (!k)
            hy_err_oom(err);
        return k;
    }
    k->authority = authority;
    k->dir = dir;
    k->credentials = hy_take(credentials);
    if (fill(k, user, err) < 0) {
        known_free(k);
        return NULL;
    }
    k->next = all;
    all = k;
    return k;
}

/* The default is read each time: HADOOP_CONF_DIR may have changed. */
static int authority_of(const char *url, const char *dir, char **ret, const char **ret_path, struct hy_err *err)
{
    const char *start = strstr(url, "://");
    size_t n = start ? strcspn(start + 3, "/") : 0;
    struct hy_hdfs_conf *conf;
    int rc;

    *ret_path = start ? start + 3 + n : strchr(url, ':') ? strchr(url, ':') + 1 : url;
    if (n) {
        *ret = hy_strndup(start + 3, n);
        return *ret ? 0 : hy_err_oom(err);
    }
    conf = hy_hdfs_conf_load(dir, err);
    if (!conf)
        return err->code;
    rc = default_authority(conf, ret, err);
    hy_hdfs_conf_free(conf);
    return rc;
}

char *hy_hdfs_path(const char *path)
{
    char *out = hy_malloc(strlen(path) + 2);
    size_t n = 0;

    if (!out)
        return NULL;
    while (*path) {
        size_t part = strcspn(path, "/");

        if (part == 2 && memcmp(path, "..", 2) == 0) {
            while (n && out[--n] != '/')
                ;
        } else if (part && !(part == 1 && *path == '.')) {
            out[n++] = '/';
            memcpy(out + n, path, part);
            n += part;
        }
        path += part + (path[part] == '/');
    }
    if (n == 0)
        out[n++] = '/';
    out[n] = '\0';
    return out;
}

/* The limits of HDFS are 1,000 components and 8,000 characters of up to three bytes; /.reserved/raw and .snapshot come
 * on top. The client checks them, too: this bounds every walk, including those of TensorFlow and fsspec, when a faulty
 * NameNode lists ever deeper directories. */
static int check_path(const char *path, const char *url, struct hy_err *err)
{
    size_t parts = 0;

    for (const char *p = path; *p; p++)
        parts += *p == '/';
    if (parts <= PATH_PARTS_MAX && strlen(path) <= PATH_BYTES_MAX)
        return 0;
    return hy_err_set(err, -ENAMETOOLONG, "HDFS paths have at most %u components and %u bytes; this one has more: %s",
                      PATH_PARTS_MAX, PATH_BYTES_MAX, url);
}

int hy_hdfs_cluster_find(const char *url, struct hy_hdfs_cluster **ret, char **ret_path, struct hy_err *err)
{
    hy_cleanup_free char *dir = hy_hdfs_conf_dir(), *authority = NULL, *path = NULL;
    struct hy_err own = {0};
    const char *rest;
    struct known *k;
    int rc;

    if (!err)
        err = &own;
    rc = authority_of(url, dir, &authority, &rest, err);
    if (rc < 0)
        return rc;
    path = hy_hdfs_path(rest);
    rc = path ? check_path(path, url, err) : hy_err_oom(err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&all_lock);
    k = find_or_make(hy_take(authority), hy_take(dir), err);
    pthread_mutex_unlock(&all_lock);
    if (!k)
        return err->code;
    *ret = &k->cluster;
    *ret_path = hy_take(path);
    return 0;
}

/* ---- calls ------------------------------------------------------------------------ */

/* The connection to the current NameNode, whose number is *ret_node. */
static struct hy_hdfs_rpc *connection(struct hy_hdfs_cluster *c, size_t *ret_node, struct hy_err *err)
{
    struct hy_hdfs_namenodes *n = c->namenodes;
    struct hy_hdfs_rpc *rpc;

    pthread_mutex_lock(&n->lock);
    *ret_node = n->active;
    if (!n->rpc) {
        const struct hy_hdfs_rpc_peer peer = {
            .host = n->nodes[n->active].host,
            .port = n->nodes[n->active].port,
            .protocol = PROTOCOL,
            .user = c->user,
            .real_user = n->real_user,
            .client_id = n->client_id,
            .conf = c->conf,
            .nameservice = n->nameservice,
            .principal = "dfs.namenode.kerberos.principal",
        };

        n->rpc = hy_hdfs_rpc_connect(&peer, err);
    }
    rpc = n->rpc ? hy_hdfs_rpc_ref(n->rpc) : NULL;
    pthread_mutex_unlock(&n->lock);
    return rpc;
}

/* Drops a failed connection and switches to the next NameNode, unless another thread has done so. */
static void fail_over(struct hy_hdfs_namenodes *n, size_t node, struct hy_hdfs_rpc *rpc)
{
    pthread_mutex_lock(&n->lock);
    if (n->active == node && n->rpc == rpc) {
        n->rpc = NULL;
        n->active = (node + 1) % n->count;
        pthread_mutex_unlock(&n->lock);
        hy_hdfs_rpc_unref(rpc);
        return;
    }
    pthread_mutex_unlock(&n->lock);
}

static int64_t retry_limit_ms(struct hy_hdfs_cluster *c)
{
    struct hy_hdfs_namenodes *n = c->namenodes;
    bool has_responded;

    pthread_mutex_lock(&n->lock);
    has_responded = n->has_responded;
    pthread_mutex_unlock(&n->lock);
    if (has_responded)
        return RETRY_KNOWN_MS;
    return (int64_t)(hy_hdfs_conf_number(c->conf, "ipc.client.connect.max.retries", 10) *
                     hy_hdfs_conf_number(c->conf, "ipc.client.connect.retry.interval", 1000));
}

static int32_t new_call(struct hy_hdfs_namenodes *n)
{
    int32_t id;

    pthread_mutex_lock(&n->lock);
    id = n->next_call;
    n->next_call = id == INT32_MAX ? 0 : id + 1;
    pthread_mutex_unlock(&n->lock);
    return id;
}

static void note_response(struct hy_hdfs_namenodes *n)
{
    pthread_mutex_lock(&n->lock);
    n->has_responded = true;
    pthread_mutex_unlock(&n->lock);
}

/* Whether a failure to connect is permanent. */
static bool is_permanent(int rc)
{
    return rc == -EACCES || rc == -EINVAL || rc == -ELIBACC || rc == -ENOTSUP;
}

/* A NameNode that has just started stays in safe mode until enough blocks are reported. Calls of an open file are
 * retried until then; others fail, as in a safe mode that an administrator has turned on. */
static bool is_starting(const struct hy_hdfs_rpc_call *call, const char *text)
{
    static const char *const writer_calls[] = {"addBlock",      "abandonBlock",          "complete",
                                               "fsync",         "getAdditionalDatanode", "updateBlockForPipeline",
                                               "updatePipeline"};

    for (size_t i = 0; i < HY_COUNT(writer_calls); i++)
        if (strcmp(call->method, writer_calls[i]) == 0)
            return text && strstr(text, "reported blocks");
    return false;
}

enum retry { NO_RETRY, RETRY_ELSEWHERE, RETRY_LATER };

/* One attempt. 0 with a response, or -Exxx; then *ret_retry tells whether and where to retry. */
static int try_once(struct hy_hdfs_cluster *c, const struct hy_hdfs_rpc_call *call, struct hy_hdfs_rpc_response *ret,
                    enum retry *ret_retry, struct hy_err *err)
{
    struct hy_hdfs_namenodes *n = c->namenodes;
    size_t node;
    struct hy_hdfs_rpc *rpc = connection(c, &node, err);
    int rc = rpc ? hy_hdfs_rpc_invoke(rpc, call, ret) : err->code;

    *ret_retry = !rpc && is_permanent(rc) ? NO_RETRY : RETRY_ELSEWHERE;
    if (rpc && rc < 0)
        hy_err_sys(err, rc, "the NameNode %s:%u does not respond", n->nodes[node].host, n->nodes[node].port);
    if (rc == 0) {
        note_response(n);
        if (ret->header->status == HDFS__RPC_RESPONSE_HEADER__STATUS__SUCCESS) {
            hy_hdfs_rpc_unref(rpc);
            return 0;
        }
        rc = hy_hdfs_exception(ret->header->exceptionclassname, ret->header->errormsg, err);
        *ret_retry = rc == -EHOSTDOWN ? RETRY_ELSEWHERE : rc == -EAGAIN ? RETRY_LATER : NO_RETRY;
        if (rc == -EROFS && is_starting(call, ret->header->errormsg))
            *ret_retry = RETRY_LATER;
        if (ret->header->status == HDFS__RPC_RESPONSE_HEADER__STATUS__FATAL)
            fail_over(n, node, rpc);
        hy_hdfs_rpc_response_done(ret);
    }
    if (*ret_retry == RETRY_ELSEWHERE)
        fail_over(n, node, rpc);
    hy_hdfs_rpc_unref(rpc);
    return rc;
}

static const char *addresses(const struct hy_hdfs_namenodes *n, char *out, size_t size)
{
    size_t at = 0;

    for (size_t i = 0; i < n->count && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s:%u", i ? ", " : "", n->nodes[i].host, n->nodes[i].port);
    return out;
}

static int give_up(const struct hy_hdfs_cluster *c, int64_t ms, struct hy_err *err)
{
    const struct hy_hdfs_namenodes *n = c->namenodes;
    char names[300], time[32];

    hy_format_duration(ms, time, sizeof(time));
    if (n->count > 1)
        return hy_err_wrap(err, "none of the NameNodes of %s (%s) responded within %s; the last error", c->name,
                           addresses(n, names, sizeof(names)), time);
    return hy_err_wrap(err, "no NameNode responded at %s within %s", addresses(n, names, sizeof(names)), time);
}

static int call_with_retries(struct hy_hdfs_cluster *c, struct hy_hdfs_rpc_call *call, struct hy_hdfs_rpc_response *ret,
                             struct hy_err *err)
{
    const int64_t since = hy_clock_ms(), end = since + retry_limit_ms(c);
    int wait = WAIT_MIN_MS;

    for (call->retry = 0;; call->retry++) {
        enum retry retry;
        int rc = try_once(c, call, ret, &retry, err);

        if (rc == 0 || retry == NO_RETRY || rc == -ENOMEM)
            return rc;
        if (hy_fs_is_interrupted())
            return hy_err_set(err, -EINTR, "interrupted while waiting for %s", c->name);
        if (hy_clock_ms() + wait > end)
            return retry == RETRY_LATER ? rc : give_up(c, hy_clock_ms() - since, err);
        /* No delay at first: an idle connection may just have been closed, and another NameNode may be active. */
        if (retry == RETRY_ELSEWHERE && (size_t)call->retry < c->namenodes->count)
            continue;
        if (hy_hdfs_sock_sleep(wait) < 0)
            return hy_err_set(err, -EINTR, "interrupted while waiting for %s", c->name);
        wait = 2 * wait > WAIT_MAX_MS ? WAIT_MAX_MS : 2 * wait;
    }
}

int hy_hdfs_call(struct hy_hdfs_cluster *c, const char *method, const ProtobufCMessage *request,
                 const ProtobufCMessageDescriptor *type, void *ret_response, struct hy_err *err)
{
    struct hy_hdfs_rpc_call call = {.method = method, .request = request, .id = new_call(c->namenodes)};
    struct hy_hdfs_rpc_response response;
    struct hy_err own = {0};
    ProtobufCMessage *message;
    int rc = call_with_retries(c, &call, &response, err ? err : &own);

    if (rc < 0)
        return rc;
    message = protobuf_c_message_unpack(type, NULL, response.n, response.body);
    hy_hdfs_rpc_response_done(&response);
    if (!message)
        return hy_err_set(err, -EPROTO, "invalid response of %s to %s", c->name, method);
    *(ProtobufCMessage **)ret_response = message;
    return 0;
}

int hy_hdfs_defaults(struct hy_hdfs_cluster *c, const Hdfs__ServerDefaults **ret, struct hy_err *err)
{
    struct hy_hdfs_namenodes *n = c->namenodes;
    Hdfs__Nothing request = HDFS__NOTHING__INIT;
    Hdfs__GetServerDefaultsResponse *response = NULL;
    int rc = 0;

    pthread_mutex_lock(&n->lock);
    const bool is_known = n->defaults;
    pthread_mutex_unlock(&n->lock);
    if (!is_known)
        rc = hy_hdfs_call(c, "getServerDefaults", &request.base, &hdfs__get_server_defaults_response__descriptor,
                          &response, err);
    if (rc < 0)
        return rc;
    pthread_mutex_lock(&n->lock);
    if (!n->defaults)
        n->defaults = hy_take(response);
    *ret = n->defaults->serverdefaults;
    pthread_mutex_unlock(&n->lock);
    hy_hdfs_free_response(&response);
    return 0;
}

void hy_hdfs_free_response(void *pointer_to_message)
{
    ProtobufCMessage *m = *(ProtobufCMessage **)pointer_to_message;

    if (m)
        protobuf_c_message_free_unpacked(m, NULL);
}
