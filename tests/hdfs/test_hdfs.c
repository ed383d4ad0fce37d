/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the HDFS client that need no cluster, and responses that a real
 * cluster does not send: a small fake server sends those. Everything else is tested
 * on real clusters, in e2e/test_hdfs_*.py.
 */
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "fs/fs.h"
#include "hdfs/data/read_ahead.h"
#include "hdfs/data/block_reader.h"
#include "hdfs/cluster.h"
#include "hdfs/conf.h"
#include "hdfs/data/erasure_code.h"
#include "hdfs/hdfs.h"
#include "hdfs/listing.h"
#include "hdfs/data/packet.h"
#include "hdfs/rpc/rpc.h"
#include "hdfs/sock.h"

/* ---- settings and paths ---- */

static struct hy_hdfs_conf *conf_of(const char *text)
{
    struct hy_err err = {0};
    struct hy_hdfs_conf *c = hy_hdfs_conf_load(NULL, &err);

    assert_non_null(c);
    assert_int_equal(hy_hdfs_conf_parse(c, text, strlen(text), "test", &err), 0);
    return c;
}

HY_TEST(test_settings_files_of_hadoop_are_parsed)
{
    struct hy_hdfs_conf *c = conf_of(
        "<?xml version='1.0'?><!-- a note --><configuration>\n"
        "<property><name>a</name><value>\n  1 &lt; 2 </value><final>true</final></property>"
        "<property><value>128m</value><description>x</description><name> b </name></property>"
        "<property><name>c</name><value/></property>"
        "<property><name>a</name><value>later</value></property>"
        "<property><name>b</name><value>2k</value></property></configuration>");

    assert_string_equal(hy_hdfs_conf_get(c, "a"), "1 < 2"); /* final values are not overridden */
    assert_int_equal(hy_hdfs_conf_number(c, "b", 7), 2048);
    assert_int_equal(hy_hdfs_conf_number(c, "a", 7), 7);
    assert_null(hy_hdfs_conf_get(c, "c"));
    assert_null(hy_hdfs_conf_get(c, "d"));
    hy_hdfs_conf_free(c);
}

static void write_file(const char *dir, const char *name, const char *text)
{
    char *path = hy_path_join(dir, name);

    assert_int_equal(hy_file_write(path, text, strlen(text), 0600), 0);
    free(path);
}

HY_TEST(test_values_refer_to_others_and_the_environment)
{
    char dir[] = "/tmp/hopyard-test-XXXXXX";
    struct hy_err err = {0};
    struct hy_hdfs_conf *c;

    assert_non_null(mkdtemp(dir));
    write_file(dir, "core-site.xml",
               "<configuration><property><name>fs.defaultFS</name><value>hdfs://${ns}</value></property>"
               "<property><name>loop</name><value>${loop}x</value></property></configuration>");
    write_file(dir, "hdfs-site.xml",
               "<configuration><property><name>ns</name><value>${env.HY_TEST:-yard}</value></property>"
               "<property><name>open</name><value>${unknown} and ${</value></property></configuration>");
    assert_int_equal(setenv("HY_TEST", "", 1), 0);
    c = hy_hdfs_conf_load(dir, &err);
    assert_non_null(c);
    assert_string_equal(hy_hdfs_conf_get(c, "fs.defaultFS"), "hdfs://yard");
    assert_string_equal(hy_hdfs_conf_get(c, "open"), "${unknown} and ${");
    assert_non_null(hy_hdfs_conf_get(c, "loop")); /* a circular reference ends */
    hy_hdfs_conf_free(c);
    write_file(dir, "core-site.xml", "<configuration><property>");
    assert_null(hy_hdfs_conf_load(dir, &err));
    assert_non_null(strstr(err.text, "core-site.xml is not a valid Hadoop settings file: line 1"));
    assert_int_equal(hy_remove_tree(dir), 0);
}

HY_TEST(test_paths_are_normalized)
{
    static const char *const pairs[][2] = {
        {"", "/"},
        {"/", "/"},
        {"//", "/"},
        {"/a//b/", "/a/b"},
        {"/a/./b/../c", "/a/c"},
        {"/../..", "/"},
        {"a", "/a"},
        {"/..a/b..", "/..a/b.."},
        {"/a b/%20", "/a b/%20"},
    };

    for (size_t i = 0; i < HY_COUNT(pairs); i++) {
        char *path = hy_hdfs_path(pairs[i][0]);

        assert_string_equal(path, pairs[i][1]);
        free(path);
    }
}

HY_TEST(test_exceptions_map_to_errno_values)
{
    struct hy_err err = {0};

    assert_int_equal(hy_hdfs_exception("java.io.FileNotFoundException", "/a is not\n\tat java", &err), -ENOENT);
    assert_string_equal(err.text, "/a is not");
    assert_int_equal(hy_hdfs_exception("org.apache.hadoop.security.token.SecretManager$InvalidToken", "old", &err),
                     -EACCES);
    assert_int_equal(
        hy_hdfs_exception("java.io.IOException", "File /a could only be written to 0 of the 1 nodes", &err), -ENOSPC);
    assert_int_equal(hy_hdfs_exception(NULL, NULL, &err), -EIO);
}

/* ---- erasure codes: parity computed by Hadoop's encoder for the bytes 37 i + 11 j + 1 ---- */

static void from_hex(const char *hex, uint8_t *out)
{
    for (; *hex; hex += 2) {
        const char pair[3] = {hex[0], hex[1]};

        *out++ = (uint8_t)strtoul(pair, NULL, 16);
    }
}

static void check_code(const char *codec, unsigned data, unsigned parity, const char *const *parities)
{
    uint8_t bytes[HY_HDFS_EC_UNITS_MAX][8], back[8];
    const uint8_t *units[HY_HDFS_EC_UNITS_MAX];
    struct hy_hdfs_ec ec;

    assert_int_equal(hy_hdfs_ec_init(&ec, codec, data, parity), 0);
    for (unsigned i = 0; i < data; i++)
        for (unsigned j = 0; j < 8; j++)
            bytes[i][j] = (uint8_t)(37 * i + 11 * j + 1);
    for (unsigned i = 0; i < parity; i++)
        from_hex(parities[i], bytes[data + i]);
    for (unsigned lost = 0; lost < data; lost++) {
        for (unsigned more = 0; more < data + parity; more++) { /* a second lost unit, where the code tolerates it */
            for (unsigned i = 0; i < data + parity; i++)
                units[i] = i == lost || (i == more && parity > 1) ? NULL : bytes[i];
            assert_int_equal(hy_hdfs_ec_recover(&ec, units, lost, back, sizeof(back)), 0);
            assert_memory_equal(back, bytes[lost], sizeof(back));
        }
    }
    for (unsigned i = 0; i <= parity; i++)
        units[i] = NULL;
    for (unsigned i = parity + 1; i < data + parity; i++)
        units[i] = bytes[i];
    assert_int_equal(hy_hdfs_ec_recover(&ec, units, 0, back, sizeof(back)), -ENODATA);
}

HY_TEST(test_lost_units_are_reconstructed)
{
    static const char *const rs32[] = {"acc472df45c17315", "7946aa749771d0ef"};
    static const char *const rs63[] = {"d46de1da9bfea7ad", "65a77d2218102dff", "d994bfe457290c4a"};
    static const char *const rs104[] = {"6c6db1111a8c0ec7", "b7a8db94967a5b3c", "c1b890d925fd1795", "48f552d3a352beb9"};
    static const char *const xor21[] = {"273d2b657f652b3d"};
    struct hy_hdfs_ec ec;

    check_code("rs", 3, 2, rs32);
    check_code("rs", 6, 3, rs63);
    check_code("rs", 10, 4, rs104);
    check_code("xor", 2, 1, xor21);
    assert_int_equal(hy_hdfs_ec_init(&ec, "rs-legacy", 6, 3), -ENOTSUP);
    assert_int_equal(hy_hdfs_ec_init(&ec, "rs", 30, 3), -ENOTSUP);
}

/* ---- a server that sends prepared bytes ---- */

struct server {
    pthread_t thread;
    int fd;
    atomic_int conversation;
    unsigned port;
    const uint8_t *bytes;
    size_t n;
    int turns; /* number of connections that get it, each after its first bytes */
};

static void *lie(void *arg)
{
    struct server *l = arg;
    uint8_t asked[65536];

    for (int i = 0; i < l->turns; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);

        if (fd < 0)
            break;
        atomic_store(&l->conversation, fd);
        if (read(fd, asked, sizeof(asked)) > 0 && l->n)
            (void)!send(fd, l->bytes, l->n, MSG_NOSIGNAL);
        shutdown(fd, SHUT_WR);
        while (read(fd, asked, sizeof(asked)) > 0)
            ;
        close(fd);
    }
    return NULL;
}

static void start_liar(struct server *l, const void *bytes, size_t n, int turns)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(a);

    *l = (struct server){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .bytes = bytes, .n = n, .turns = turns};
    assert_int_equal(bind(l->fd, (struct sockaddr *)&a, size), 0);
    assert_int_equal(listen(l->fd, 8), 0);
    assert_int_equal(getsockname(l->fd, (struct sockaddr *)&a, &size), 0);
    l->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&l->thread, NULL, lie, l), 0);
}

static void stop_liar(struct server *l)
{
    shutdown(l->fd, SHUT_RDWR);
    shutdown(atomic_load(&l->conversation), SHUT_RDWR); /* the client may have cached it */
    pthread_join(l->thread, NULL);
    close(l->fd);
}

static int call_fake_server(const void *bytes, size_t n, struct hy_hdfs_rpc_response *ret)
{
    static const uint8_t client_id[HY_HDFS_RPC_CLIENT_ID_SIZE];
    Hdfs__GetFileInfoRequest request = HDFS__GET_FILE_INFO_REQUEST__INIT;
    const struct hy_hdfs_rpc_call call = {.method = "getFileInfo", .request = &request.base, .id = 5};
    struct hy_err err = {0};
    struct server l;
    struct hy_hdfs_rpc *rpc;
    int rc;

    start_liar(&l, bytes, n, 1);
    request.src = (char *)"/";
    rpc = hy_hdfs_rpc_connect(
        &(struct hy_hdfs_rpc_peer){
            .host = "127.0.0.1", .port = l.port, .protocol = "p", .user = "u", .client_id = client_id},
        &err);
    assert_non_null(rpc);
    rc = hy_hdfs_rpc_invoke(rpc, &call, ret);
    hy_hdfs_rpc_unref(rpc);
    stop_liar(&l);
    return rc;
}

HY_TEST(test_invalid_responses_of_a_namenode_are_rejected)
{
    static const struct {
        const char *what, *bytes;
        size_t n;
        int rc;
    } cases[] = {
        {"nothing", "", 0, -ECONNRESET},
        {"half a length", "\0\0", 2, -ECONNRESET},
        {"a frame that ends early", "\0\0\0\x20\x04\x08\x05", 7, -ECONNRESET},
        {"a frame of 2 GiB", "\x7f\xff\xff\xff", 4, -EPROTO},
        {"a frame of nothing", "\0\0\0\0", 4, -EPROTO},
        {"a header that goes beyond its frame", "\0\0\0\x02\x7f\x08", 6, -EPROTO},
        {"a header that is none", "\0\0\0\x03\x02\xff\xff", 7, -EPROTO},
        {"an answer without a body", "\0\0\0\x05\x04\x08\x05\x10\x00", 9, -EPROTO},
        {"a body that goes beyond its frame", "\0\0\0\x06\x04\x08\x05\x10\x00\x7f", 10, -EPROTO},
        {"an answer to another call, and no more", "\0\0\0\x06\x04\x08\x06\x10\x00\x00", 10, -ECONNRESET},
        {"a page of HTTP", "HTTP/1.1 404 Not Found\r\n\r\n", 26, -EPROTO},
    };
    struct hy_hdfs_rpc_response answer;

    for (size_t i = 0; i < HY_COUNT(cases); i++) {
        int rc = call_fake_server(cases[i].bytes, cases[i].n, &answer);

        if (rc != cases[i].rc)
            fail_msg("%s: %d", cases[i].what, rc);
    }
    /* and a valid one is accepted */
    assert_int_equal(call_fake_server("\0\0\0\x06\x04\x08\x05\x10\x00\x00", 10, &answer), 0);
    assert_int_equal(answer.n, 0);
    hy_hdfs_rpc_response_done(&answer);
}

/* ---- DataNodes ---- */

struct story {
    struct hy_buf b;
};

/* The response to a read request: CRC-32C over chunks of 4 bytes. */
static void begin_script(struct story *s, uint64_t chunk_offset)
{
    Hdfs__BlockOpResponse answer = HDFS__BLOCK_OP_RESPONSE__INIT;
    Hdfs__ReadOpChecksumInfo info = HDFS__READ_OP_CHECKSUM_INFO__INIT;
    Hdfs__Checksum sum = HDFS__CHECKSUM__INIT;

    hy_buf_init(&s->b, 32 << 20);
    sum.type = HDFS__CHECKSUM_TYPE__CHECKSUM_CRC32C;
    sum.bytesperchecksum = 4;
    info.checksum = &sum;
    info.chunkoffset = chunk_offset;
    answer.readopchecksuminfo = &info;
    assert_int_equal(hy_hdfs_delimited_append(&s->b, &answer.base), 0);
}

static void add_packet(struct story *s, struct hy_hdfs_packet p, const char *data, uint8_t spoil)
{
    const struct hy_hdfs_checksums checksums = {.type = HDFS__CHECKSUM_TYPE__CHECKSUM_CRC32C, .chunk = 4};
    static uint8_t sums[65536];
    uint8_t head[HY_HDFS_PACKET_HEADER_MAX];

    p.data = (uint32_t)strlen(data);
    p.sums = (uint32_t)hy_hdfs_checksums_size(&checksums, p.data);
    hy_hdfs_checksums_compute(&checksums, data, p.data, sums);
    sums[0] ^= spoil;
    assert_int_equal(hy_buf_append(&s->b, head, hy_hdfs_packet_format(&p, head)), 0);
    assert_int_equal(hy_buf_append(&s->b, sums, p.sums), 0);
    assert_int_equal(hy_buf_append(&s->b, data, p.data), 0);
}

/* Reads bytes 2 to 10 of a block. */
static int64_t read_story(const struct story *s, char *into, size_t n, struct hy_err *err)
{
    static struct hy_hdfs_cluster cluster = {.name = "hdfs://server", .user = "u", .client_name = "test"};
    Hdfs__ExtendedBlock block = HDFS__EXTENDED_BLOCK__INIT;
    Hdfs__DatanodeID node = HDFS__DATANODE_ID__INIT;
    struct hy_hdfs_block_request want = {
        .cluster = &cluster, .block = &block, .node = &node, .from = 2, .to = 10, .timeout_ms = 5000};
    struct hy_hdfs_block_reader *r = NULL;
    struct hy_hdfs_conf *conf = conf_of("<configuration/>");
    struct server l;
    int64_t rc;

    cluster.conf = conf;
    start_liar(&l, hy_buf_bytes(&s->b), s->b.len, 1);
    block.poolid = node.datanodeuuid = node.hostname = (char *)"x";
    node.ipaddr = (char *)"127.0.0.1";
    node.xferport = l.port;
    rc = hy_hdfs_block_reader_open(&r, &want, err);
    assert_int_equal(rc, 0);
    rc = hy_hdfs_block_reader_read(r, into, n, err);
    hy_hdfs_block_reader_close(r);
    stop_liar(&l);
    hy_hdfs_conf_free(conf);
    return rc;
}

HY_TEST(test_a_valid_block_is_read)
{
    struct hy_err err = {0};
    struct story s;
    char into[16] = "";

    begin_script(&s, 0);
    add_packet(&s, (struct hy_hdfs_packet){.offset = 0}, "01234567", 0);
    add_packet(&s, (struct hy_hdfs_packet){.offset = 8, .number = 1}, "89ab", 0);
    add_packet(&s, (struct hy_hdfs_packet){.offset = 12, .number = 2, .is_last = true}, "", 0);
    assert_int_equal(read_story(&s, into, sizeof(into), &err), 8);
    assert_memory_equal(into, "23456789", 8);
    hy_buf_done(&s.b);
}

HY_TEST(test_invalid_packets_of_a_datanode_are_detected)
{
    const struct hy_hdfs_packet first = {.offset = 0}, last = {.offset = 8, .number = 1, .is_last = true};
    struct hy_err err = {0};
    struct story s;
    char into[16];

    begin_script(&s, 0);
    add_packet(&s, first, "01234567", 1);
    assert_int_equal(read_story(&s, into, sizeof(into), &err), -EBADMSG);
    assert_non_null(strstr(err.text, "is damaged at byte 0"));
    hy_buf_done(&s.b);

    begin_script(&s, 0); /* ends before the requested range does */
    add_packet(&s, first, "01234567", 0);
    add_packet(&s, last, "", 0);
    assert_int_equal(read_story(&s, into, sizeof(into), &err), -EPROTO);
    hy_buf_done(&s.b);

    begin_script(&s, 0); /* a gap */
    add_packet(&s, (struct hy_hdfs_packet){.offset = 4}, "01234567", 0);
    assert_int_equal(read_story(&s, into, sizeof(into), &err), -EPROTO);
    hy_buf_done(&s.b);

    begin_script(&s, 4); /* after the requested range */
    add_packet(&s, (struct hy_hdfs_packet){.offset = 4}, "01234567", 0);
    assert_int_equal(read_story(&s, into, sizeof(into), &err), -EPROTO);
    hy_buf_done(&s.b);

    begin_script(&s, 0); /* not a packet header */
    assert_int_equal(hy_buf_append(&s.b, "\xff\xff\xff\xff\xff\xff\xff\xff", 8), 0);
    assert_int_equal(read_story(&s, into, sizeof(into), &err), -EPROTO);
    hy_buf_done(&s.b);

    begin_script(&s, 0); /* the connection ends in the middle */
    add_packet(&s, first, "01234567", 0);
    assert_int_equal(read_story(&s, into, sizeof(into), &err), -ECONNRESET);
    hy_buf_done(&s.b);
}

/* A caller that works between reads gets a read-ahead thread (read_ahead.h); it must deliver the same bytes. */
static void read_slowly(struct hy_hdfs_read_ahead *a, size_t total)
{
    static uint8_t piece[100000];
    const struct timespec work = {.tv_nsec = 2000000};

    for (size_t at = 0; at < total;) {
        struct hy_err err = {0};
        int64_t got = hy_hdfs_read_ahead_read(a, piece, total - at < sizeof(piece) ? total - at : sizeof(piece), &err);

        assert_true(got > 0);
        for (size_t i = 0; i < (size_t)got; i += 997)
            assert_int_equal(piece[i], (uint8_t)('a' + (at + i) / 4096 % 26));
        at += (size_t)got;
        assert_int_equal(hy_hdfs_read_ahead_offset(a), at);
        nanosleep(&work, NULL);
    }
}

static void tell_much(struct story *s, size_t total, size_t packet)
{
    static char data[65537];

    begin_script(s, 0);
    for (size_t at = 0; at < total; at += packet) {
        for (size_t i = 0; i < packet; i++)
            data[i] = (char)('a' + (at + i) / 4096 % 26);
        data[packet] = '\0';
        add_packet(s, (struct hy_hdfs_packet){.offset = at, .number = (int64_t)(at / packet)}, data, 0);
    }
}

static void check_ahead(size_t told, size_t read, int64_t then)
{
    static struct hy_hdfs_cluster cluster = {.name = "hdfs://server", .user = "u", .client_name = "test"};
    Hdfs__ExtendedBlock block = HDFS__EXTENDED_BLOCK__INIT;
    Hdfs__DatanodeID node = HDFS__DATANODE_ID__INIT;
    struct hy_hdfs_block_request want = {
        .cluster = &cluster, .block = &block, .node = &node, .to = 8 << 20, .timeout_ms = 5000};
    struct hy_hdfs_conf *conf = conf_of("<configuration/>");
    struct hy_hdfs_block_reader *r;
    struct hy_hdfs_read_ahead *a;
    struct hy_err err = {0};
    struct story s;
    struct server l;
    uint8_t more[8];

    tell_much(&s, told, 65536);
    if (told == want.to)
        add_packet(&s, (struct hy_hdfs_packet){.offset = told, .number = 999, .is_last = true}, "", 0);
    cluster.conf = conf;
    start_liar(&l, hy_buf_bytes(&s.b), s.b.len, 1);
    block.poolid = node.datanodeuuid = node.hostname = (char *)"x";
    node.ipaddr = (char *)"127.0.0.1";
    node.xferport = l.port;
    assert_int_equal(hy_hdfs_block_reader_open(&r, &want, &err), 0);
    a = hy_hdfs_read_ahead_new(r);
    assert_non_null(a);
    read_slowly(a, read);
    if (then <= 0)
        assert_int_equal(hy_hdfs_read_ahead_read(a, more, sizeof(more), &err), then);
    hy_hdfs_read_ahead_close(a);
    stop_liar(&l);
    hy_buf_done(&s.b);
    hy_hdfs_conf_free(conf);
}

HY_TEST(test_read_ahead_delivers_the_same_bytes)
{
    check_ahead(8 << 20, 8 << 20, 0);
    check_ahead(8 << 20, 5 << 20, 1);                 /* closed in the middle */
    check_ahead(7 << 20, 7 << 20, -ECONNRESET);       /* the connection ends after good bytes */
}

/* ---- receive buffers ---- */

static int window_of(const struct hy_hdfs_sock *s)
{
    socklen_t n = sizeof(int);
    int bytes;

    assert_int_equal(getsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &bytes, &n), 0);
    return bytes;
}

HY_TEST(test_local_addresses_are_recognized)
{
    struct ifaddrs *all;
    int count = 0;

    assert_int_equal(getifaddrs(&all), 0);
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        char address[INET_ADDRSTRLEN];

        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET || !(a->ifa_flags & IFF_UP))
            continue;
        assert_non_null(
            inet_ntop(AF_INET, &((struct sockaddr_in *)(void *)a->ifa_addr)->sin_addr, address, sizeof(address)));
        assert_true(hy_hdfs_sock_is_local_address(address));
        count++;
    }
    freeifaddrs(all);
    assert_true(count > 0);
    assert_false(hy_hdfs_sock_is_local_address("192.0.2.77"));
    assert_false(hy_hdfs_sock_is_local_address("a name"));
    assert_false(hy_hdfs_sock_is_local_address(""));
}

/* Connections to 127.0.0.2 come from 127.0.0.1: it looks like another machine. */
HY_TEST(test_only_local_connections_have_a_small_buffer)
{
    struct sockaddr_in a = {.sin_family = AF_INET};
    socklen_t size = sizeof(a);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct hy_hdfs_sock near, far;
    struct hy_err err = {0};
    int as_it_comes;

    assert_int_equal(bind(listener, (struct sockaddr *)&a, size), 0);
    assert_int_equal(listen(listener, 2), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&a, &size), 0);
    assert_int_equal(hy_hdfs_sock_connect(&near, "127.0.0.1", ntohs(a.sin_port), 1000, 1000, &err), 0);
    assert_int_equal(hy_hdfs_sock_connect(&far, "127.0.0.2", ntohs(a.sin_port), 1000, 1000, &err), 0);
    as_it_comes = window_of(&far);
    assert_int_equal(window_of(&near), 2 * 112 * 1024);
    hy_hdfs_sock_widen(&near);
    hy_hdfs_sock_widen(&far);
    assert_true(window_of(&near) > 2 * 112 * 1024);
    assert_int_equal(window_of(&far), as_it_comes);
    hy_hdfs_sock_close(&near);
    hy_hdfs_sock_close(&far);
    close(listener);
}

/* ---- listings ---- */

static Hdfs__FileStatus status_of(const char *name, size_t n)
{
    static Hdfs__Permission permission = HDFS__PERMISSION__INIT;
    static char owner[] = "alice", group[] = "staff";
    Hdfs__FileStatus s = HDFS__FILE_STATUS__INIT;

    s.path = (ProtobufCBinaryData){.len = n, .data = (uint8_t *)name};
    s.owner = owner;
    s.group = group;
    s.permission = &permission;
    return s;
}

/* A listing of one page with one entry. */
static int take_name(const char *name, size_t n, struct hy_err *err)
{
    hy_cleanup_hdfs_listing struct hy_hdfs_listing l = {0};
    Hdfs__FileStatus good = status_of("good", 4), s = status_of(name, n), *entries[] = {&good, &s};
    Hdfs__DirectoryListing page = HDFS__DIRECTORY_LISTING__INIT;

    *err = (struct hy_err){0};
    page.partiallisting = entries;
    page.n_partiallisting = 2;
    return hy_hdfs_listing_page(&l, &page, "hdfs://nn/d", err);
}

HY_TEST(test_names_that_escape_their_directory_are_rejected)
{
    static const char *const bad[] = {"", ".", "..", "/", "a/b", "../x", "/etc/passwd", "a/"};
    static const char *const good[] = {"...", ".a", "..a", "a", "\\", "%2e%2e", "\xff\xfe", "~", "a b", "\n"};
    char longest[HY_HDFS_NAME_MAX + 2];
    struct hy_err err;

    memset(longest, 'x', sizeof(longest));
    for (size_t i = 0; i < HY_COUNT(bad); i++) {
        assert_int_equal(take_name(bad[i], strlen(bad[i]), &err), -EPROTO);
        assert_non_null(strstr(err.text, "it is faulty or hostile; nothing more is read from hdfs://nn/d"));
    }
    for (size_t i = 0; i < HY_COUNT(good); i++)
        assert_int_equal(take_name(good[i], strlen(good[i]), &err), 0);
    assert_int_equal(take_name("a\0b", 3, &err), -EPROTO);
    assert_non_null(strstr(err.text, "'a\\x00b'"));
    assert_int_equal(take_name("\033[2J/", 5, &err), -EPROTO);
    assert_non_null(strstr(err.text, "'\\x1b[2J/'"));
    assert_int_equal(take_name(longest, HY_HDFS_NAME_MAX, &err), 0);
    assert_int_equal(take_name(longest, HY_HDFS_NAME_MAX + 1, &err), -EPROTO);
    assert_non_null(strstr(err.text, "xxx…'"));
}

/* Sends pages of 1,000 entries, differing in the last name only, until one is rejected. Returns the accepted pages. */
static uint64_t take_pages(char *owner, uint32_t remaining, struct hy_err *err)
{
    hy_cleanup_hdfs_listing struct hy_hdfs_listing l = {0};
    Hdfs__FileStatus s = status_of("same", 4), last = status_of("same", 4), *entries[1000];
    Hdfs__DirectoryListing page = HDFS__DIRECTORY_LISTING__INIT;
    uint64_t count = 0;
    char name[32];
    int rc = 1;

    *err = (struct hy_err){0};
    s.owner = owner ? owner : s.owner;
    for (size_t i = 0; i < HY_COUNT(entries); i++)
        entries[i] = i + 1 < HY_COUNT(entries) ? &s : &last;
    page.partiallisting = entries;
    page.n_partiallisting = HY_COUNT(entries);
    page.remainingentries = remaining;
    while (rc == 1 && count < 10000) {
        last.path.data = (uint8_t *)name;
        last.path.len = (size_t)snprintf(name, sizeof(name), "%llu", (unsigned long long)count);
        rc = hy_hdfs_listing_page(&l, &page, "hdfs://nn/d", err);
        count += rc == 1;
    }
    return count;
}

HY_TEST(test_a_listing_has_at_most_as_many_entries_as_a_directory)
{
    hy_cleanup_free char *long_owner = hy_malloc(1 << 20);
    struct hy_err err;

    assert_non_null(long_owner);
    memset(long_owner, 'x', 1 << 20);
    long_owner[(1 << 20) - 1] = '\0';
    assert_int_equal(take_pages(NULL, 1, &err), HY_HDFS_DIRECTORY_MAX / 1000);
    assert_non_null(strstr(err.text, "listed more entries than a directory can have"));
    assert_int_equal(take_pages(long_owner, 1, &err), 0);
    assert_non_null(strstr(err.text, "listed more entries than a directory can have"));
    assert_int_equal(err.code, -EPROTO);
}

/* ---- URLs ---- */

HY_TEST(test_paths_beyond_the_limits_of_hdfs_are_rejected)
{
    char url[30000] = "hdfs://127.0.0.1:1";
    size_t n = strlen(url);
    struct hy_fs_info info;
    struct hy_err err = {0};

    hy_hdfs_add();
    for (int i = 0; i < 1025; i++)
        n += (size_t)snprintf(url + n, sizeof(url) - n, "/d");
    assert_int_equal(hy_fs_stat(url, &info, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "at most 1024 components and 24576 bytes"));
    n = (size_t)snprintf(url, sizeof(url), "hdfs://127.0.0.1:1/");
    memset(url + n, 'x', 24576);
    url[n + 24576] = '\0';
    assert_int_equal(hy_fs_stat(url, &info, &err), -ENAMETOOLONG);
}

HY_TEST(test_an_unreachable_namenode_is_named)
{
    struct hy_fs_info info;
    struct hy_err err = {0};

    hy_hdfs_add();
    assert_int_equal(unsetenv("HADOOP_CONF_DIR"), 0);
    assert_int_equal(unsetenv("HADOOP_HOME"), 0);
    assert_int_equal(hy_fs_stat("hdfs:///a", &info, &err), -EINVAL);
    assert_non_null(strstr(err.text, "fs.defaultFS, which is not set"));
    assert_int_equal(hy_fs_stat("hdfs://host:0/a", &info, &err), -EINVAL);
    assert_int_equal(hy_fs_stat("s3://bucket/a", &info, &err), -EPROTONOSUPPORT);
}
