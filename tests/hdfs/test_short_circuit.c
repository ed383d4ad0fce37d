/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short-circuit reads, with a fake DataNode at the socket for responses that a real one does not send. Real DataNodes
 * are tested in e2e/test_hdfs_replicas.py.
 */
#include "support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "hdfs/data/block_reader.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/packet.h"
#include "hdfs/data/short_circuit.h"

#define LENGTH 100000u
#define CHUNK 512u
#define META_HEAD 7u
#define PATIENCE_MS 20000

static uint8_t content[LENGTH];

/* ---- a DataNode ---- */

struct node {
    char path[64];
    int listener;
    int data, meta;          /* files, in memory */
    int count;               /* of descriptors to send */
    Hdfs__Status status;
    bool closes, is_invalid; /* sends nothing; sends an invalid response */
    unsigned asked;
    pthread_t thread;
    struct hy_hdfs_conf *conf;
    struct hy_hdfs_cluster cluster;
};

static void send_files(const struct node *n, int to)
{
    const int fds[3] = {n->data, n->meta, n->data};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {0};
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

    if (n->count) {
        m.msg_control = control;
        m.msg_controllen = CMSG_SPACE((size_t)n->count * sizeof(int));
        CMSG_FIRSTHDR(&m)->cmsg_level = SOL_SOCKET;
        CMSG_FIRSTHDR(&m)->cmsg_type = SCM_RIGHTS;
        CMSG_FIRSTHDR(&m)->cmsg_len = CMSG_LEN((size_t)n->count * sizeof(int));
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), fds, (size_t)n->count * sizeof(int));
    }
    (void)!sendmsg(to, &m, MSG_NOSIGNAL);
}

static void answer(const struct node *n, int to)
{
    const uint8_t response[] = {2, 8, (uint8_t)n->status}; /* length, tag of the first field, its value */

    (void)!send(to, n->is_invalid ? (const uint8_t *)"\xff\xff\xff" : response, sizeof response, MSG_NOSIGNAL);
    if (n->status == HDFS__STATUS__SUCCESS && !n->is_invalid)
        send_files(n, to);
}

static void *serve(void *arg)
{
    struct node *n = arg;
    int fd;

    while ((fd = accept(n->listener, NULL, NULL)) >= 0) {
        uint8_t request[256];
        const ssize_t got = recv(fd, request, sizeof request, 0);

        n->asked++;
        if (got > 3 && request[1] == 28 && request[2] == 87 && !n->closes)
            answer(n, fd);
        close(fd);
    }
    return NULL;
}

static int in_memory(const void *bytes, size_t count)
{
    const int fd = memfd_create("file", MFD_CLOEXEC);

    assert_true(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
    return fd;
}

static int make_meta(uint32_t chunk)
{
    const struct hy_hdfs_checksums checksums = {.type = HDFS__CHECKSUM_TYPE__CHECKSUM_CRC32C, .chunk = chunk};
    const size_t sums = hy_hdfs_checksums_size(&checksums, LENGTH);
    uint8_t *meta = calloc(META_HEAD + sums, 1);
    int fd;

    assert_non_null(meta);
    memcpy(meta,
           (uint8_t[]){0, 1, 2, (uint8_t)(chunk >> 24), (uint8_t)(chunk >> 16), (uint8_t)(chunk >> 8), (uint8_t)chunk},
           META_HEAD);
    hy_hdfs_checksums_compute(&checksums, content, LENGTH, meta + META_HEAD);
    fd = in_memory(meta, META_HEAD + sums);
    free(meta);
    return fd;
}

static void open_node(struct node *n, uint32_t chunk)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char text[300];
    struct hy_err err = {0};

    *n = (struct node){.count = 2, .status = HDFS__STATUS__SUCCESS};
    snprintf(n->path, sizeof n->path, "/tmp/hopyard-replica-%d", (int)getpid());
    for (size_t i = 0; i < LENGTH; i++)
        content[i] = (uint8_t)(i * 2654435761u >> 13);
    n->data = in_memory(content, LENGTH);
    n->meta = make_meta(chunk);
    n->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    memcpy(a.sun_path, n->path, strlen(n->path) + 1);
    assert_true(n->listener >= 0 && bind(n->listener, (const struct sockaddr *)&a, sizeof a) == 0);
    assert_int_equal(listen(n->listener, 5), 0);
    assert_int_equal(pthread_create(&n->thread, NULL, serve, n), 0);
    n->conf = hy_hdfs_conf_load(NULL, &err);
    assert_non_null(n->conf);
    snprintf(text, sizeof text,
             "<configuration><property><name>dfs.client.read.shortcircuit</name><value>true</value></property>"
             "<property><name>dfs.domain.socket.path</name><value>%s-_PORT</value></property></configuration>",
             n->path);
    assert_int_equal(hy_hdfs_conf_parse(n->conf, text, strlen(text), "test", &err), 0);
    n->cluster =
        (struct hy_hdfs_cluster){.name = "hdfs://test", .user = "test", .client_name = "test", .conf = n->conf};
}

static void close_node(struct node *n)
{
    shutdown(n->listener, SHUT_RDWR);
    assert_int_equal(pthread_join(n->thread, NULL), 0);
    close(n->listener);
    unlink(n->path);
    close(n->data);
    close(n->meta);
    hy_hdfs_conf_free(n->conf);
}

/* ---- the client ---- */

/* Each port is another name for the same socket, since a refused path is not used again. */
static unsigned port = 1;

static int open_replica(struct node *n, const char *address, struct hy_hdfs_local_replica **ret)
{
    char name[80];
    int rc;
    Hdfs__ExtendedBlock block = HDFS__EXTENDED_BLOCK__INIT;
    Hdfs__DatanodeID id = HDFS__DATANODE_ID__INIT;
    const struct hy_hdfs_block_request want = {.cluster = &n->cluster,
                                               .block = &block,
                                               .node = &id,
                                               .to = LENGTH,
                                               .timeout_ms = PATIENCE_MS,
                                               .may_be_local = true};

    block.poolid = (char *)"pool";
    id.ipaddr = id.hostname = (char *)(uintptr_t)address;
    id.datanodeuuid = (char *)"node";
    id.xferport = port;
    snprintf(name, sizeof name, "%s-%u", n->path, port);
    assert_int_equal(symlink(n->path, name), 0);
    rc = hy_hdfs_local_replica_open(ret, &want);
    unlink(name);
    return rc;
}

/* The number of bytes read, or the error. */
static int64_t read_at(struct hy_hdfs_local_replica *r, uint64_t at, uint64_t to, void *into, size_t n)
{
    uint64_t now = at;
    const int rc = hy_hdfs_local_replica_read(r, &now, to, into, n);

    return rc < 0 ? rc : (int64_t)(now - at);
}

static unsigned open_files(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned count = 0;

    assert_non_null(d);
    while (readdir(d))
        count++;
    closedir(d);
    return count;
}

HY_TEST(test_any_range_with_any_chunk_size)
{
    static const uint32_t chunks[] = {1, 7, 512, 65536, 70000, LENGTH, 200000};
    static const size_t places[] = {0, 1, 511, 512, 513, 65535, 65536, 70001, LENGTH - 1, LENGTH};
    static uint8_t got[LENGTH];

    for (size_t c = 0; c < HY_COUNT(chunks); c++) {
        struct hy_hdfs_local_replica *r = NULL;
        struct node n;

        port++;
        open_node(&n, chunks[c]);
        assert_int_equal(open_replica(&n, "127.0.0.1", &r), 0);
        for (size_t i = 0; i < HY_COUNT(places); i++)
            for (size_t k = i; k < HY_COUNT(places); k++) {
                const size_t count = places[k] - places[i];

                assert_int_equal(read_at(r, places[i], LENGTH, got, count), count);
                assert_memory_equal(got, content + places[i], count);
                assert_int_equal(read_at(r, places[i], places[k], got, LENGTH), count);
            }
        hy_hdfs_local_replica_close(r);
        close_node(&n);
    }
}

HY_TEST(test_a_datanode_with_invalid_responses_is_not_asked_again)
{
    for (int i = 0; i < 6; i++) {
        struct hy_hdfs_local_replica *r = NULL;
        unsigned before;
        struct node n;

        port++;
        open_node(&n, CHUNK);
        n.count = i < 2 ? i : i == 2 ? 3 : 2; /* descriptors: none, one, one too many */
        n.closes = i == 3;
        n.is_invalid = i == 4;
        n.status = i == 5 ? HDFS__STATUS__ERROR : HDFS__STATUS__SUCCESS;
        before = open_files();
        assert_true(open_replica(&n, "127.0.0.1", &r) == (i == 2   ? 0
                                                          : i == 5 ? -EREMOTEIO
                                                          : i >= 3 ? -ECONNRESET
                                                                   : -EPROTO) ||
                    (i == 4 && n.asked == 1));
        hy_hdfs_local_replica_close(hy_take(r));
        assert_true(open_files() <= before + 1); /* the server thread may still close its descriptor */
        (void)open_replica(&n, "127.0.0.1", &r);
        hy_hdfs_local_replica_close(r);
        close_node(&n);
        assert_int_equal(n.asked,
                         i == 2 || i == 5 ? 2 : 1); /* refusing one replica is valid, and so is an extra descriptor */
    }
}

HY_TEST(test_invalid_files_are_rejected)
{
    static const uint8_t heads[][META_HEAD] = {
        {0, 2, 2, 0, 0, 2, 0}, {0, 1, 9, 0, 0, 2, 0}, {0, 1, 2, 0, 0, 0, 0}, {0, 1, 2, 127, 0, 0, 0}};

    for (size_t i = 0; i <= HY_COUNT(heads); i++) {
        struct hy_hdfs_local_replica *r = NULL;
        struct node n;

        open_node(&n, CHUNK);
        if (i < HY_COUNT(heads))
            assert_int_equal(pwrite(n.meta, heads[i], META_HEAD, 0), META_HEAD);
        else
            assert_int_equal(ftruncate(n.meta, 3), 0);
        assert_int_equal(open_replica(&n, "127.0.0.1", &r), i < HY_COUNT(heads) ? -ENOTSUP : -ENODATA);
        close_node(&n);
    }
}

HY_TEST(test_corrupt_chunks_are_not_returned)
{
    uint8_t got[2000];
    struct hy_hdfs_local_replica *r;
    struct node n;
    uint64_t at;

    open_node(&n, CHUNK);
    assert_int_equal(open_replica(&n, "127.0.0.1", &r), 0);
    assert_int_equal(pwrite(n.data, "?", 1, 5000), 1);
    assert_int_equal(read_at(r, 0, LENGTH, got, 2000), 2000);
    assert_int_equal(read_at(r, 3000, LENGTH, got, 1608), 1608); /* up to the corrupt chunk */
    assert_memory_equal(got, content + 3000, 1608);
    assert_int_equal(read_at(r, 5120, LENGTH, got, 2000), 2000);
    assert_int_equal(read_at(r, 4096, LENGTH, got, 2000), -EBADMSG);
    at = 4096;
    assert_int_equal(hy_hdfs_local_replica_read(r, &at, LENGTH, got, 2000), -EBADMSG);
    assert_int_equal(at, 4608); /* the verified bytes */
    assert_int_equal(hy_hdfs_local_replica_chunk_start(r, 5000), 4608);
    assert_int_equal(read_at(r, 4999, LENGTH, got, 1), -EBADMSG);
    assert_int_equal(pwrite(n.data, &content[5000], 1, 5000), 1);
    assert_int_equal(ftruncate(n.meta, META_HEAD + 4), 0); /* missing checksums, then missing data */
    assert_int_equal(read_at(r, 4096, LENGTH, got, 2000), -ENODATA);
    assert_int_equal(ftruncate(n.data, 6000), 0);
    assert_int_equal(read_at(r, 8192, LENGTH, got, 512), -ENODATA);
    hy_hdfs_local_replica_close(r);
    assert_int_equal(open_replica(&n, "127.0.0.1", &r), 0);
    assert_int_equal(read_at(r, 0, LENGTH, got, 512), -ENODATA); /* shorter than reported by the NameNode */
    hy_hdfs_local_replica_close(r);
    close_node(&n);
}

/* The last chunk has a new checksum then, and is not corrupt. */
HY_TEST(test_a_replica_that_has_grown_is_not_corrupt)
{
    uint8_t got[2000];
    struct hy_hdfs_local_replica *r;
    struct node n;

    open_node(&n, CHUNK);
    assert_int_equal(open_replica(&n, "127.0.0.1", &r), 0);
    assert_int_equal(pwrite(n.data, "more", 4, LENGTH), 4);
    assert_int_equal(pwrite(n.meta, "sums", 4, META_HEAD + LENGTH / CHUNK * 4), 4);
    assert_int_equal(read_at(r, 0, LENGTH, got, 2000), 2000);
    assert_int_equal(read_at(r, LENGTH - 10, LENGTH, got, 10), -ESTALE);
    hy_hdfs_local_replica_close(r);
    close_node(&n);
}

HY_TEST(test_only_a_local_datanode_is_asked)
{
    struct hy_hdfs_local_replica *r = NULL;
    struct node n;

    open_node(&n, CHUNK);
    assert_int_equal(open_replica(&n, "192.0.2.77", &r), -ENOTSUP);
    close_node(&n);
    assert_int_equal(n.asked, 0);
}

static int open_and_read(void *node)
{
    uint8_t got[2000];
    struct hy_hdfs_local_replica *r = NULL;
    int rc;

    port++;
    rc = open_replica(node, "127.0.0.1", &r);
    if (rc == 0 && read_at(r, 100, LENGTH, got, 2000) != 2000)
        rc = -EIO;
    hy_hdfs_local_replica_close(r);
    return rc;
}

HY_TEST(test_a_failure_leaves_nothing_open)
{
    unsigned before;
    struct node n;

    open_node(&n, CHUNK);
    before = open_files();
    hy_each_fault(HY_SEAM_ALLOC, open_and_read, &n);
    hy_each_fault(HY_SEAM_SYS, open_and_read, &n);
    close_node(&n);
    assert_true(open_files() < before);
}
