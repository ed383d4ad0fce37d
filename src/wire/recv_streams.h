/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The receiving ends of a session's streams: how far each has come, what the
 * sender has been told about that, and which streams are over. Bytes are not
 * kept here, but for the control message that has not come in whole.
 *
 * Private to the mux.
 */
#ifndef HY_WIRE_INCOMING_H
#define HY_WIRE_INCOMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "wire/idset.h"

#define HY_INCOMING_MAX 4096 /* data streams that may be open at a time */

struct hy_frame;
struct hy_mark;

struct hy_incoming {
    uint32_t id;
    bool forgotten; /* stays only until the sender has been told */
    uint64_t received, consumed;
    uint64_t told_received, told_limit; /* what the sender knows of it */
    struct hy_list unsaid;              /* in the list below when it should know more */
};

struct hy_incomings {
    struct hy_incoming control;
    struct hy_buf message; /* control bytes that are not a whole message yet */
    struct hy_map data;    /* id to struct hy_incoming */
    struct hy_list unsaid; /* streams that the sender should hear of */
    bool urgent;           /* and soon: it may be waiting */
    struct hy_idset used;  /* numbers that were opened or forgotten */
};

void hy_incomings_init(struct hy_incomings *in);
void hy_incomings_done(struct hy_incomings *in);

/*
 * Takes a DATA frame in. *ret_bytes and *ret_n are what is new of a data
 * stream; of the control stream it is in `message`. 1 when there is something
 * new, 0 when not, or -Exxx; then nothing has changed.
 */
int hy_incomings_data(struct hy_incomings *in, const struct hy_frame *f, const uint8_t **ret_bytes,
                      size_t *ret_n, const char **ret_why);
/* The first whole control message: 1, 0, or -EPROTO. Drop it by hy_incomings_drop_message. */
int hy_incomings_message(const struct hy_incomings *in, const uint8_t **ret_bytes, size_t *ret_n,
                         const char **ret_why);
void hy_incomings_drop_message(struct hy_incomings *in, size_t n);

void hy_incomings_consumed(struct hy_incomings *in, uint32_t id, size_t n);
void hy_incomings_forget(struct hy_incomings *in, uint32_t id);

/* Appends a CREDIT frame for each stream that the sender should hear of. 0 or -Exxx. */
int hy_incomings_emit(struct hy_incomings *in, struct hy_buf *out);

/* What a Hello says: at most HY_INCOMING_MAX + 1 marks; counts them when `marks` is NULL. */
size_t hy_incomings_marks(struct hy_incomings *in, struct hy_mark *marks);

#endif
