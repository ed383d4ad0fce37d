/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fake HDFS cluster driven by a fuzz input: NameNodes and DataNodes whose responses are the segments of a script.
 * There are no sockets and no threads: hy_hdfs_sock_connect and the system calls of sock.c are replaced by the linker
 * (--wrap, see tests/meson.build), and when the client reads from a connection without pending bytes, the next segment
 * of the script becomes bytes of that connection. At the end of the script all connections end, so that no call blocks.
 *
 *     setting  fault  step  count  count action bytes  segments
 *
 *     setting   index into `settings` (scripted_settings.c): Hadoop's settings and credentials
 *     fault     0, or the number of the allocation (even) or system call (odd) that fails
 *     step      0, or the maximum of bytes per read
 *     actions   the choices of the fuzz target: its calls
 *     segment   kind: 1 byte, length: 2 bytes, little-endian, and as many bytes: see enum hy_segment
 *
 * Values that a fuzzer cannot guess are computed here: call numbers, lengths, checksums, and the proofs and signatures
 * of the server (scripted_sasl.c).
 */
#ifndef HY_FUZZ_SCRIPTED_H
#define HY_FUZZ_SCRIPTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hy_segment {
    HY_PLAY_RAW,       /* raw bytes */
    HY_PLAY_ANSWER,    /* the response message of the last call */
    HY_PLAY_EXCEPTION, /* status, number of the class, text */
    HY_PLAY_SASL,      /* an RpcSasl message */
    HY_PLAY_PROOF,     /* the server's final message of DIGEST-MD5 or GSSAPI; its byte has bits: see scripted.c */
    HY_PLAY_MESSAGE,   /* a delimited message */
    HY_PLAY_PACKET,    /* the bytes are the next data of a block */
    HY_PLAY_LAST,      /* the packet that ends a block */
    HY_PLAY_ACK,       /* of the next packet; the bytes are the statuses */
    HY_PLAY_READ,      /* the response to a read request: checksum type, chunk size (2 bytes, little-endian) */
    HY_PLAY_END,       /* the connection ends */
    HY_PLAY_ODD,       /* an invalid packet: distance from the right offset, bits, data: see scripted.c */
    HY_PLAY_REFUSE,    /* a connection is refused */
    HY_PLAY_FILES,     /* descriptors of a replica's files: count, type, chunk (2 bytes), bits, data */
    HY_PLAY_KINDS,
};

/* Starts a script. False: too short. */
bool hy_script_begin(const uint8_t *data, size_t size);
/* Frees the session. */
void hy_script_end(void);

/* The next action byte; -1: none. */
int hy_script_action(void);
/* The URL of a file in the cluster. */
const char *hy_script_url(void);

/* ---- internal ---- */

struct hy_setting {
    const char *url;
    const char *service; /* of the token; NULL: no token */
    bool is_here;        /* DataNodes are local */
    const char *pairs[17]; /* keys and values, NULL at the end */
};
extern const struct hy_setting hy_settings[];
extern const size_t hy_settings_count;

/* The server side of the last SASL exchange. */
enum hy_played_kind { HY_PLAYED_NONE, HY_PLAYED_DIGEST, HY_PLAYED_GSSAPI };

struct hy_played;
struct hy_buf;
/* A copy of the state, for free(); NULL when there is none. */
struct hy_played *hy_played_take(void);
void hy_played_forget(void);
enum hy_played_kind hy_played_kind(const struct hy_played *p);
/* "rspauth=…" of DIGEST-MD5, or "". */
const char *hy_played_proof(const struct hy_played *p);
/* Whether later bytes are wrapped. */
bool hy_played_wraps(const struct hy_played *p);
void hy_played_wrap(struct hy_played *p, const void *bytes, size_t n, struct hy_buf *out);

#endif
