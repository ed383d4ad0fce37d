/* SPDX-License-Identifier: Apache-2.0 */
#include "scripted.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/mem.h"
#include "hdfs/security/aes.h"
#include "hdfs/conf.h"
#include "hdfs/data/datanode.h"
#include "hdfs/hdfs.h"
#include "hdfs/lease_renewer.h"
#include "hdfs/data/packet.h"
#include "hdfs/data/pipeline.h"
#include "hdfs/rpc/rpc.h"
#include "hdfs/rpc/rpc_internal.h"
#include "hdfs/sock.h"
#include "hdfs/security/tokens.h"

#define LINKS_MAX 1024
#define SLEEPS_MAX 3 /* sleeps that return at once; the next one is interrupted */
#define IN_MAX (8u << 20)
#define CALL_SASL (-33)

/* Bits of HY_PLAY_PROOF, HY_PLAY_ODD and HY_PLAY_FILES. */
enum { PROOF_CHALLENGE = 1, PROOF_AES = 2, PROOF_NONE = 4, PROOF_SHORT_IV = 8 };
enum { ODD_LAST = 1, ODD_SUM = 2, ODD_NO_SUMS = 4 };
enum { FILES_SUM = 1, FILES_VERSION = 2, FILES_SHORT = 4 };

/* The server side of a connection. */
struct link {
    bool is_open, is_over, is_datanode;
    struct hy_buf in; /* what the client has not read yet */
    struct hy_played *sasl; /* wraps everything; or NULL */
    struct hy_hdfs_aes *aes;     /* encrypts everything; or NULL */
    uint64_t offset;        /* of the next packet */
    int64_t number;
    struct hy_hdfs_checksums checksums;
};

static struct {
    const uint8_t *at, *action;
    size_t n, actions; /* remaining */
    const struct hy_setting *setting;
    size_t step;
    int sleeps;
    enum hy_seam seam;
    long fault_in; /* passages of the seam until the fault; 0: none */
    int32_t call; /* the last one */
    uint64_t from; /* offset of the last read request */
    int64_t acked; /* the next packet to be acknowledged */
    struct link links[LINKS_MAX]; /* by descriptor */
} script;

struct segment {
    enum hy_segment kind;
    const uint8_t *bytes;
    size_t n;
};

static void append(struct hy_buf *b, const void *bytes, size_t n)
{
    if (n && hy_buf_append(b, bytes, n) < 0)
        abort();
}

/* ---- faults: only in the client ----------------------------------- */

static void pause_faults(void)
{
    if (script.fault_in)
        script.fault_in -= hy_fault_passed(script.seam);
    if (script.fault_in < 0)
        script.fault_in = 0;
    hy_fault_arm(script.seam, 0);
}

static void resume_faults(void)
{
    hy_fault_arm(script.seam, script.fault_in);
}

/* ---- the script -------------------------------------------------------------------- */

/* The kind of the next segment; HY_PLAY_KINDS: none. */
static enum hy_segment next_kind(void)
{
    return script.n < 3 ? HY_PLAY_KINDS : (enum hy_segment)(*script.at % HY_PLAY_KINDS);
}

static bool take_segment(struct segment *ret)
{
    size_t n;

    if (script.n < 3)
        return false;
    ret->kind = next_kind();
    n = (size_t)script.at[1] | (size_t)script.at[2] << 8;
    script.at += 3;
    script.n -= 3;
    ret->bytes = script.at;
    ret->n = n < script.n ? n : script.n;
    script.at += ret->n;
    script.n -= ret->n;
    return true;
}

static unsigned byte_at(const struct segment *s, size_t i)
{
    return i < s->n ? s->bytes[i] : 0;
}

/* The bytes after the first `n`. */
static struct segment rest_of(const struct segment *s, size_t n)
{
    return (struct segment){.kind = s->kind, .bytes = s->bytes + (n < s->n ? n : s->n), .n = n < s->n ? s->n - n : 0};
}

/* ---- bytes for the client ------------------------------------------------------- */

/* Bytes of a stream, through its security layer. */
static void put_stream(struct link *l, const struct hy_buf *b)
{
    hy_cleanup_buf struct hy_buf piece;
    uint8_t length[4];

    hy_buf_init(&piece, IN_MAX);
    append(&piece, hy_buf_bytes(b), b->len);
    if (l->aes && hy_hdfs_aes_apply(l->aes, hy_buf_bytes(&piece), (uint8_t *)hy_buf_bytes(&piece), piece.len) < 0)
        abort();
    if (l->is_datanode && l->sasl) {
        hy_buf_clear(&piece);
        hy_played_wrap(l->sasl, hy_buf_bytes(b), b->len, &piece);
        for (int i = 0; i < 4; i++)
            length[i] = (uint8_t)(piece.len >> (24 - 8 * i));
        append(&l->in, length, sizeof(length));
    }
    append(&l->in, hy_buf_bytes(&piece), piece.len);
}

static void append_length(struct hy_buf *b, size_t n)
{
    uint8_t byte;

    do {
        byte = (uint8_t)((n & 0x7f) | (n > 0x7f ? 0x80 : 0));
        append(b, &byte, 1);
        n >>= 7;
    } while (n);
}

/* A frame with a response, or only a header for an exception. */
static void append_frame(struct hy_buf *b, Hdfs__RpcResponseHeader *h, const void *body, size_t n)
{
    const size_t begin = b->len;

    append(b, "\0\0\0", 4);
    if (hy_hdfs_delimited_append(b, &h->base) < 0)
        abort();
    if (h->status == HDFS__RPC_RESPONSE_HEADER__STATUS__SUCCESS) {
        append_length(b, n);
        append(b, body, n);
    }
    hy_hdfs_rpc_end_frame(b, begin);
}

static void append_sasl(struct hy_buf *b, const Hdfs__RpcSasl *m)
{
    Hdfs__RpcResponseHeader h = HDFS__RPC_RESPONSE_HEADER__INIT;
    const size_t n = hdfs__rpc_sasl__get_packed_size(m);
    uint8_t *bytes = malloc(n + 1);

    if (!bytes)
        abort();
    h.callid = (uint32_t)CALL_SASL;
    append_frame(b, &h, bytes, hdfs__rpc_sasl__pack(m, bytes));
    free(bytes);
}

/* A complete frame, wrapped if required. */
static void put_frame(struct link *l, Hdfs__RpcResponseHeader *h, const void *body, size_t n)
{
    hy_cleanup_buf struct hy_buf frame, token;
    Hdfs__RpcSasl m = HDFS__RPC_SASL__INIT;

    hy_buf_init(&frame, IN_MAX);
    hy_buf_init(&token, IN_MAX);
    append_frame(&frame, h, body, n);
    if (!l->sasl) {
        append(&l->in, hy_buf_bytes(&frame), frame.len);
        return;
    }
    hy_played_wrap(l->sasl, hy_buf_bytes(&frame), frame.len, &token);
    m.state = HDFS__RPC_SASL__STATE__WRAP;
    m.has_token = 1;
    m.token.data = (uint8_t *)hy_buf_bytes(&token);
    m.token.len = token.len;
    append_sasl(&l->in, &m);
}

static void put_answer(struct link *l, const struct segment *s)
{
    Hdfs__RpcResponseHeader h = HDFS__RPC_RESPONSE_HEADER__INIT;

    h.callid = (uint32_t)script.call;
    put_frame(l, &h, s->bytes, s->n);
}

static void put_exception(struct link *l, const struct segment *s)
{
    static const char *const classes[] = {
        "FileNotFoundException",
        "java.io.IOException",
        "org.apache.hadoop.ipc.StandbyException",
        "org.apache.hadoop.ipc.RetriableException",
        "SafeModeException",
        "ReplicaNotFoundException",
        "InvalidToken",
        "a.b$LeaseExpiredException",
        "AccessControlException",
        "FileAlreadyExistsException",
        "",
    };
    const struct segment text = rest_of(s, 2);
    Hdfs__RpcResponseHeader h = HDFS__RPC_RESPONSE_HEADER__INIT;
    char words[300];

    snprintf(words, sizeof(words), "%.*s", (int)text.n, (const char *)text.bytes);
    h.callid = (uint32_t)script.call;
    h.status = byte_at(s, 0) % 2 ? HDFS__RPC_RESPONSE_HEADER__STATUS__ERROR : HDFS__RPC_RESPONSE_HEADER__STATUS__FATAL;
    h.exceptionclassname = (char *)classes[byte_at(s, 1) % HY_COUNT(classes)];
    h.errormsg = words;
    put_frame(l, &h, NULL, 0);
}

static void put_sasl(struct link *l, const struct segment *s)
{
    Hdfs__RpcResponseHeader h = HDFS__RPC_RESPONSE_HEADER__INIT;

    h.callid = (uint32_t)CALL_SASL;
    append_frame(&l->in, &h, s->bytes, s->n);
}

static void put_message(struct link *l, const struct segment *s)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, IN_MAX);
    append_length(&b, s->n);
    append(&b, s->bytes, s->n);
    put_stream(l, &b);
}

static void put_raw(struct link *l, const struct segment *s)
{
    hy_cleanup_buf struct hy_buf b;

    hy_buf_init(&b, IN_MAX);
    append(&b, s->bytes, s->n);
    put_stream(l, &b);
}

/* ---- the end of an exchange -------------------------------------------------------- */

static void prove_to_rpc(struct link *l, struct hy_played *p, unsigned bits)
{
    const char *proof = hy_played_proof(p);
    Hdfs__RpcSasl m = HDFS__RPC_SASL__INIT;

    m.state = bits & PROOF_CHALLENGE ? HDFS__RPC_SASL__STATE__CHALLENGE : HDFS__RPC_SASL__STATE__SUCCESS;
    m.has_token = *proof && !(bits & PROOF_NONE);
    m.token.data = (uint8_t *)proof;
    m.token.len = strlen(proof);
    append_sasl(&l->in, &m);
}

static void prove_to_data(struct link *l, struct hy_played *p, unsigned bits)
{
    static const uint8_t key[16] = "0123456789abcdef", iv[HY_HDFS_AES_IV_SIZE];
    Hdfs__DataTransferEncryptorMessage m = HDFS__DATA_TRANSFER_ENCRYPTOR_MESSAGE__INIT;
    Hdfs__CipherOption option = HDFS__CIPHER_OPTION__INIT, *options = &option;
    hy_cleanup_buf struct hy_buf in, out;
    struct hy_err err = {0};

    hy_buf_init(&in, 100);
    hy_buf_init(&out, 100);
    m.has_payload = 1;
    m.payload.data = (uint8_t *)hy_played_proof(p);
    m.payload.len = strlen(hy_played_proof(p));
    if (bits & PROOF_AES && hy_played_wraps(p)) {
        hy_played_wrap(p, key, sizeof(key), &in);
        hy_played_wrap(p, key, bits & PROOF_CHALLENGE ? 5 : sizeof(key), &out); /* 5: an invalid size of an AES key */
        option.suite = 2;
        option.has_inkey = option.has_iniv = option.has_outkey = option.has_outiv = 1;
        option.inkey = (ProtobufCBinaryData){.data = (uint8_t *)hy_buf_bytes(&in), .len = in.len};
        option.outkey = (ProtobufCBinaryData){.data = (uint8_t *)hy_buf_bytes(&out), .len = out.len};
        option.iniv = option.outiv = (ProtobufCBinaryData){.data = (uint8_t *)iv,
                                                           .len = bits & PROOF_SHORT_IV ? 3 : sizeof(iv)};
        m.cipheroption = &options;
        m.n_cipheroption = 1;
        l->aes = hy_hdfs_aes_new(key, sizeof(key), iv, &err);
    }
    if (hy_hdfs_delimited_append(&l->in, &m.base) < 0)
        abort();
}

static void put_proof(struct link *l, const struct segment *s)
{
    const unsigned bits = byte_at(s, 0);
    struct hy_played *p = hy_played_take();

    if (l->sasl || l->aes) { /* repeated */
        free(p);
        return;
    }
    if (l->is_datanode)
        prove_to_data(l, p, bits);
    else
        prove_to_rpc(l, p, bits);
    if (hy_played_wraps(p) && !l->aes && !(!l->is_datanode && bits & PROOF_CHALLENGE))
        l->sasl = hy_take(p);
    free(p);
}

/* ---- blocks ------------------------------------------------------------------------ */

static void put_packet(struct link *l, struct hy_hdfs_packet *p, const struct segment *s, unsigned bits)
{
    const size_t sums_n = bits & ODD_NO_SUMS ? 0 : hy_hdfs_checksums_size(&l->checksums, s->n);
    uint8_t head[HY_HDFS_PACKET_HEADER_MAX], *sums = malloc(hy_hdfs_checksums_size(&l->checksums, s->n) + 1);
    hy_cleanup_buf struct hy_buf b;

    if (!sums)
        abort();
    hy_buf_init(&b, IN_MAX);
    p->data = (uint32_t)s->n;
    p->sums = (uint32_t)sums_n;
    p->number = l->number++;
    hy_hdfs_checksums_compute(&l->checksums, s->bytes, s->n, sums);
    if (bits & ODD_SUM && sums_n)
        sums[sums_n - 1] ^= 1;
    append(&b, head, hy_hdfs_packet_format(p, head));
    append(&b, sums, sums_n);
    append(&b, s->bytes, s->n);
    put_stream(l, &b);
    l->offset = p->offset + p->data;
    free(sums);
}

static void put_data(struct link *l, const struct segment *s)
{
    put_packet(l, &(struct hy_hdfs_packet){.offset = l->offset}, s, 0);
}

static void put_last(struct link *l, const struct segment *s)
{
    const struct segment none = {.kind = s->kind, .bytes = s->bytes};

    put_packet(l, &(struct hy_hdfs_packet){.offset = l->offset, .is_last = true}, &none, 0);
}

static void put_odd(struct link *l, const struct segment *s)
{
    const unsigned bits = byte_at(s, 1);
    const struct segment data = rest_of(s, 2);
    struct hy_hdfs_packet p = {.offset = l->offset + (uint64_t)(int8_t)byte_at(s, 0), .is_last = bits & ODD_LAST};

    p.offset &= INT64_MAX;
    put_packet(l, &p, &data, bits);
}

static void put_ack(struct link *l, const struct segment *s)
{
    Hdfs__PipelineAck ack = HDFS__PIPELINE_ACK__INIT;
    hy_cleanup_buf struct hy_buf b;
    Hdfs__Status statuses[16];

    hy_buf_init(&b, IN_MAX);
    for (size_t i = 0; i < s->n && i < HY_COUNT(statuses); i++, ack.n_reply++)
        statuses[i] = (Hdfs__Status)(s->bytes[i] % 13);
    ack.reply = statuses;
    ack.seqno = script.acked++;
    if (hy_hdfs_delimited_append(&b, &ack.base) < 0)
        abort();
    put_stream(l, &b);
}

static void put_read(struct link *l, const struct segment *s)
{
    Hdfs__BlockOpResponse answer = HDFS__BLOCK_OP_RESPONSE__INIT;
    Hdfs__ReadOpChecksumInfo info = HDFS__READ_OP_CHECKSUM_INFO__INIT;
    Hdfs__Checksum sum = HDFS__CHECKSUM__INIT;
    hy_cleanup_buf struct hy_buf b;
    const unsigned chunk = byte_at(s, 1) | byte_at(s, 2) << 8;

    hy_buf_init(&b, IN_MAX);
    l->checksums = (struct hy_hdfs_checksums){.type = (int)(byte_at(s, 0) % 3), .chunk = chunk ? chunk : 512};
    l->offset = script.from - script.from % l->checksums.chunk;
    l->number = 0;
    sum.type = (Hdfs__ChecksumType)l->checksums.type;
    sum.bytesperchecksum = l->checksums.chunk;
    info.checksum = &sum;
    info.chunkoffset = l->offset;
    answer.readopchecksuminfo = &info;
    if (hy_hdfs_delimited_append(&b, &answer.base) < 0)
        abort();
    put_stream(l, &b);
}

/* ---- connections ------------------------------------------------------------------- */

/* Converts the next segment to bytes. False: the connection has ended. */
static bool produce(struct link *l)
{
    static void (*const put[HY_PLAY_KINDS])(struct link *l, const struct segment *s) = {
        [HY_PLAY_RAW] = put_raw,     [HY_PLAY_ANSWER] = put_answer, [HY_PLAY_EXCEPTION] = put_exception,
        [HY_PLAY_SASL] = put_sasl,   [HY_PLAY_PROOF] = put_proof,   [HY_PLAY_MESSAGE] = put_message,
        [HY_PLAY_PACKET] = put_data, [HY_PLAY_LAST] = put_last,     [HY_PLAY_ACK] = put_ack,
        [HY_PLAY_READ] = put_read,   [HY_PLAY_ODD] = put_odd,
    };
    struct segment s;

    if (l->is_over || !take_segment(&s))
        return false;
    pause_faults();
    if (s.kind == HY_PLAY_END)
        l->is_over = true;
    else if (put[s.kind])
        put[s.kind](l, &s);
    resume_faults();
    return !l->is_over;
}

static struct link *find(int fd)
{
    return fd >= 0 && fd < LINKS_MAX && script.links[fd].is_open ? &script.links[fd] : NULL;
}

static void forget(struct link *l)
{
    hy_buf_done(&l->in);
    hy_hdfs_aes_free(l->aes);
    free(l->sasl);
    *l = (struct link){0};
}

/* A real socket, since the client calls getpeername. */
static int open_link(struct hy_hdfs_sock *s, int timeout_ms, bool is_datanode)
{
    int fds[2];

    *s = (struct hy_hdfs_sock){.fd = -1, .timeout_ms = timeout_ms};
    if (next_kind() == HY_PLAY_REFUSE) {
        struct segment refusal;

        take_segment(&refusal);
        return -ECONNREFUSED;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 || fds[0] >= LINKS_MAX)
        abort();
    close(fds[1]);
    forget(&script.links[fds[0]]);
    script.links[fds[0]] = (struct link){.is_open = true,
                                         .is_datanode = is_datanode,
                                         .checksums = {.type = HDFS__CHECKSUM_TYPE__CHECKSUM_CRC32C, .chunk = 512}};
    hy_buf_init(&script.links[fds[0]].in, IN_MAX);
    s->fd = fds[0];
    return 0;
}

/* ---- functions replaced by the linker ------------------------------ */

int __wrap_hy_hdfs_sock_connect(struct hy_hdfs_sock *s, const char *host, unsigned port, int connect_ms, int timeout_ms,
                                struct hy_err *err);
int __wrap_hy_hdfs_sock_connect(struct hy_hdfs_sock *s, const char *host, unsigned port, int connect_ms, int timeout_ms,
                                struct hy_err *err)
{
    int rc = open_link(s, timeout_ms, port >= 9000);

    (void)connect_ms;
    return rc < 0 ? hy_err_sys(err, rc, "cannot connect to %s:%u", host, port) : 0;
}

int __wrap_hy_hdfs_sock_connect_local(struct hy_hdfs_sock *s, const char *path, int timeout_ms);
int __wrap_hy_hdfs_sock_connect_local(struct hy_hdfs_sock *s, const char *path, int timeout_ms)
{
    (void)path;
    return open_link(s, timeout_ms, true);
}

bool __wrap_hy_hdfs_sock_is_local_address(const char *address);
bool __wrap_hy_hdfs_sock_is_local_address(const char *address)
{
    (void)address;
    return script.setting->is_here;
}

int __wrap_hy_hdfs_sock_sleep(int ms);
int __wrap_hy_hdfs_sock_sleep(int ms)
{
    (void)ms;
    return script.sleeps++ < SLEEPS_MAX ? 0 : -EINTR;
}

ssize_t __real_readv(int fd, const struct iovec *into, int count);
ssize_t __wrap_readv(int fd, const struct iovec *into, int count);
ssize_t __wrap_readv(int fd, const struct iovec *into, int count)
{
    struct link *l = find(fd);
    size_t most, given = 0;

    if (!l)
        return __real_readv(fd, into, count);
    while (l->in.len == 0)
        if (!produce(l))
            return 0;
    most = script.step && script.step < l->in.len ? script.step : l->in.len;
    for (int i = 0; i < count && given < most; i++) {
        const size_t part = into[i].iov_len < most - given ? into[i].iov_len : most - given;

        if (part)
            memcpy(into[i].iov_base, hy_buf_bytes(&l->in) + given, part);
        given += part;
    }
    hy_buf_consume(&l->in, given);
    return (ssize_t)given;
}

ssize_t __real_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *m, int flags)
{
    volatile uint8_t sum = 0; /* reads the bytes, for the sanitizers */
    size_t n = 0;

    if (!find(fd))
        return __real_sendmsg(fd, m, flags);
    for (size_t i = 0; i < m->msg_iovlen; i++) {
        for (size_t k = 0; k < m->msg_iov[i].iov_len; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)m->msg_iov[i].iov_base)[k]);
        n += m->msg_iov[i].iov_len;
    }
    return (ssize_t)n;
}

int __real_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
    if (count != 1 || !find(fds->fd))
        return __real_poll(fds, count, ms);
    fds->revents = POLLIN; /* also at the end of the stream */
    return 1;
}

/* ---- descriptors ------------------------------------------------------------------- */

static int in_memory(const void *bytes, size_t n)
{
    int fd = memfd_create("replica", MFD_CLOEXEC);

    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
        abort();
    return fd;
}

static int meta_of(const struct segment *data, const struct hy_hdfs_checksums *checksums, unsigned bits)
{
    const size_t n = hy_hdfs_checksums_are_supported(checksums) ? hy_hdfs_checksums_size(checksums, data->n) : 0;
    uint8_t *bytes = calloc(1, 7 + n);
    int fd;

    if (!bytes)
        abort();
    bytes[1] = bits & FILES_VERSION ? 9 : 1;
    bytes[2] = (uint8_t)checksums->type;
    for (int i = 0; i < 4; i++)
        bytes[3 + i] = (uint8_t)(checksums->chunk >> (24 - 8 * i));
    if (n)
        hy_hdfs_checksums_compute(checksums, data->bytes, data->n, bytes + 7);
    if (n && bits & FILES_SUM)
        bytes[7 + n - 1] ^= 1;
    fd = in_memory(bytes, bits & FILES_SHORT ? 3 : 7 + n);
    free(bytes);
    return fd;
}

static void attach(struct msghdr *m, const int *fds, size_t count)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(m);

    if (count == 0) {
        m->msg_controllen = 0;
        return;
    }
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(c), fds, count * sizeof(int));
    m->msg_controllen = CMSG_SPACE(count * sizeof(int));
}

ssize_t __real_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *m, int flags)
{
    struct segment s, data;
    struct hy_hdfs_checksums checksums;
    size_t count;
    int fds[3];

    if (!find(fd))
        return __real_recvmsg(fd, m, flags);
    if (!take_segment(&s) || s.kind == HY_PLAY_END)
        return 0;
    data = rest_of(&s, 5);
    checksums = (struct hy_hdfs_checksums){.type = (int)byte_at(&s, 1), .chunk = byte_at(&s, 2) | byte_at(&s, 3) << 8};
    count = s.kind == HY_PLAY_FILES ? byte_at(&s, 0) % 4 : 0;
    for (size_t i = 0; i < count; i++)
        fds[i] = i == 1 ? meta_of(&data, &checksums, byte_at(&s, 4)) : in_memory(data.bytes, data.n);
    attach(m, fds, count);
    *(char *)m->msg_iov[0].iov_base = 0;
    return 1;
}

/* ---- state of the client that the server needs ----------------------------------- */

int __real_hy_hdfs_rpc_invoke(struct hy_hdfs_rpc *c, const struct hy_hdfs_rpc_call *call,
                              struct hy_hdfs_rpc_response *ret);
int __wrap_hy_hdfs_rpc_invoke(struct hy_hdfs_rpc *c, const struct hy_hdfs_rpc_call *call,
                              struct hy_hdfs_rpc_response *ret);
int __wrap_hy_hdfs_rpc_invoke(struct hy_hdfs_rpc *c, const struct hy_hdfs_rpc_call *call,
                              struct hy_hdfs_rpc_response *ret)
{
    script.call = call->id;
    return __real_hy_hdfs_rpc_invoke(c, call, ret);
}

/* For any response of the NameNode the client requests and sends only valid ranges of a block. */
static void check_place(uint64_t offset, uint64_t n)
{
    if (offset > INT64_MAX || n > INT64_MAX - offset)
        abort();
}

int __real_hy_hdfs_pipeline_send(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o, struct hy_err *err);
int __wrap_hy_hdfs_pipeline_send(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o, struct hy_err *err);
int __wrap_hy_hdfs_pipeline_send(struct hy_hdfs_pipeline *p, struct hy_hdfs_out_packet *o, struct hy_err *err)
{
    check_place(o->head.offset, o->head.data);
    return __real_hy_hdfs_pipeline_send(p, o, err);
}

int __real_hy_hdfs_datanode_request(struct hy_hdfs_datanode *d, enum hy_hdfs_datanode_op op,
                                    const ProtobufCMessage *request);
int __wrap_hy_hdfs_datanode_request(struct hy_hdfs_datanode *d, enum hy_hdfs_datanode_op op,
                                    const ProtobufCMessage *request);
int __wrap_hy_hdfs_datanode_request(struct hy_hdfs_datanode *d, enum hy_hdfs_datanode_op op,
                                    const ProtobufCMessage *request)
{
    if (op == HY_HDFS_OP_READ) {
        const Hdfs__OpReadBlock *read = (const Hdfs__OpReadBlock *)request;

        check_place(read->offset, read->len);
        script.from = read->offset;
    }
    if (op == HY_HDFS_OP_WRITE &&
        ((const Hdfs__OpWriteBlock *)request)->stage == HDFS__OP_WRITE_BLOCK__STAGE__PIPELINE_SETUP_CREATE)
        script.acked = 0;
    return __real_hy_hdfs_datanode_request(d, op, request);
}

/* No thread. */
int __wrap_hy_hdfs_lease_renewer_add(struct hy_hdfs_lease *l, struct hy_err *err);
int __wrap_hy_hdfs_lease_renewer_add(struct hy_hdfs_lease *l, struct hy_err *err)
{
    (void)l;
    (void)err;
    return 0;
}

/* ---- settings ---------------------------------------------------------------------- */

struct hy_hdfs_conf *__real_hy_hdfs_conf_load(const char *dir, struct hy_err *err);
struct hy_hdfs_conf *__wrap_hy_hdfs_conf_load(const char *dir, struct hy_err *err);
struct hy_hdfs_conf *__wrap_hy_hdfs_conf_load(const char *dir, struct hy_err *err)
{
    struct hy_hdfs_conf *c = __real_hy_hdfs_conf_load(NULL, err);
    hy_cleanup_buf struct hy_buf xml;

    (void)dir;
    hy_buf_init(&xml, 64 << 10);
    if (!c || hy_buf_append_str(&xml, "<configuration>") < 0)
        goto fail;
    for (const char *const *p = script.setting->pairs; *p; p += 2)
        if (hy_buf_printf(&xml, "<property><name>%s</name><value>%s</value></property>", p[0], p[1]) < 0)
            goto fail;
    if (hy_buf_append_str(&xml, "</configuration>") < 0 ||
        hy_hdfs_conf_parse(c, (const char *)hy_buf_bytes(&xml), xml.len, "script", err) < 0)
        goto fail;
    return c;
fail:
    hy_err_set(err, -ENOMEM, "out of memory");
    hy_hdfs_conf_free(c);
    return NULL;
}

/* A file with one token. */
int __wrap_hy_hdfs_tokens_load(struct hy_hdfs_tokens *ret, struct hy_err *err);
int __wrap_hy_hdfs_tokens_load(struct hy_hdfs_tokens *ret, struct hy_err *err)
{
    const char *service = script.setting->service;
    char file[200];
    int n;

    *ret = (struct hy_hdfs_tokens){0};
    if (!service)
        return 0;
    n = snprintf(file, sizeof(file), "HDTS%c%c%ca%cid%cpassword%c%s%c%s%c", 0, 1, 1, 2, 8,
                 (int)strlen(HY_HDFS_TOKEN_KIND), HY_HDFS_TOKEN_KIND, (int)strlen(service), service, 0);
    return hy_hdfs_tokens_parse((const uint8_t *)file, (size_t)n, "script", ret, err);
}

/* ---- public functions ------------------------------------------------------------------ */

bool hy_script_begin(const uint8_t *data, size_t size)
{
    size_t fault;

    if (size < 4 || size - 4 < data[3] % 17u)
        return false;
    script.actions = data[3] % 17;
    script.action = data + 4;
    script.at = script.action + script.actions;
    script.n = size - 4 - script.actions;
    script.setting = &hy_settings[data[0] % hy_settings_count];
    fault = data[1];
    script.step = data[2];
    script.sleeps = 0;
    script.call = 0;
    script.from = 0;
    script.acked = 0;
    hy_hdfs_add();
    script.seam = fault & 1 ? HY_SEAM_SYS : HY_SEAM_ALLOC;
    script.fault_in = fault ? (long)(fault / 2 + 1) : 0;
    resume_faults();
    return true;
}

void hy_script_end(void)
{
    hy_fault_arm(script.seam, 0);
    hy_hdfs_done();
    hy_played_forget();
    for (size_t i = 0; i < LINKS_MAX; i++)
        if (script.links[i].is_open)
            forget(&script.links[i]);
}

int hy_script_action(void)
{
    if (script.actions == 0)
        return -1;
    script.actions--;
    return *script.action++;
}

const char *hy_script_url(void)
{
    return script.setting->url;
}
