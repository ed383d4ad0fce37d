/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HDFS cluster that is played from a fuzz input: NameNodes and DataNodes whose answers are the segments of a
 * script. There are no sockets and no threads: hy_hdfs_sock_connect and the system calls of sock.c are replaced by the
 * linker (--wrap, see tests/meson.build), and whenever the client reads from any connection and nothing is left to
 * read there, the next segment of the script becomes bytes of that connection. At the end of the script all
 * connections are at their end, so that no call waits.
 *
 *     setting  fault  step  count  count action bytes  segments
 *
 *     setting   which entry of `settings` (scripted_settings.c): Hadoop's settings, and what we have to sign on with
 *     fault     0, or which allocation (even) or system call (odd) fails, counted from when the script begins
 *     step      0, or the most bytes that one read returns
 *     actions   the choices of the fuzz target: which calls it makes
 *     segment   kind: 1 byte, length: 2 bytes, the lowest first, and as many bytes: see enum hy_segment
 *
 * What a fuzzer cannot guess is computed here: numbers of calls, lengths, checksums, and the server's proofs and
 * signatures (scripted_sasl.c).
 */
#ifndef HY_FUZZ_SCRIPTED_H
#define HY_FUZZ_SCRIPTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum hy_segment {
    HY_PLAY_RAW,       /* the bytes as they are */
    HY_PLAY_ANSWER,    /* the bytes are the message that answers the last call */
    HY_PLAY_EXCEPTION, /* status, number of the class, text */
    HY_PLAY_SASL,      /* an RpcSasl message */
    HY_PLAY_PROOF,     /* the server's final message of DIGEST-MD5 or GSSAPI; its byte has bits: see scripted.c */
    HY_PLAY_MESSAGE,   /* a message behind its length */
    HY_PLAY_PACKET,    /* the bytes are the next data of a block */
    HY_PLAY_LAST,      /* the packet that ends a block */
    HY_PLAY_ACK,       /* of the next packet; the bytes are the statuses */
    HY_PLAY_READ,      /* answers a request to read: type of the sums, bytes of a chunk (2 bytes, the lowest first) */
    HY_PLAY_END,       /* the connection ends */
    HY_PLAY_ODD,       /* a packet with a mistake: distance from its right offset, bits, data: see scripted.c */
    HY_PLAY_REFUSE,    /* a connection is refused */
    HY_PLAY_FILES,     /* descriptors of a replica's files: count, type, chunk (2 bytes), bits, data */
    HY_PLAY_KINDS,
};

/* Begins a script. False: it is too short to be one. */
bool hy_script_begin(const uint8_t *data, size_t size);
/* Frees all that the session used. */
void hy_script_end(void);

/* The next action byte; -1: there are no more. */
int hy_script_action(void);
/* The cluster's URL, with a file in it. */
const char *hy_script_url(void);

/* ---- between the files of this part ---- */

struct hy_setting {
    const char *url;
    const char *service; /* for which there is a token; NULL: there is none */
    bool is_here;        /* DataNodes are on this machine */
    const char *pairs[17]; /* key and value in turn, NULL at the end */
};
extern const struct hy_setting hy_settings[];
extern const size_t hy_settings_count;

/* The server's side of the client's last SASL exchange. */
enum hy_played_kind { HY_PLAYED_NONE, HY_PLAYED_DIGEST, HY_PLAYED_GSSAPI };

struct hy_played;
struct hy_buf;
/* A copy of the state, the caller's to free by free(); NULL when there is none. */
struct hy_played *hy_played_take(void);
void hy_played_forget(void);
enum hy_played_kind hy_played_kind(const struct hy_played *p);
/* "rspauth=…" of DIGEST-MD5, or "". */
const char *hy_played_proof(const struct hy_played *p);
/* Whether what follows is wrapped. */
bool hy_played_wraps(const struct hy_played *p);
void hy_played_wrap(struct hy_played *p, const void *bytes, size_t n, struct hy_buf *out);

#endif
