/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The interface between TensorFlow's ops and the group and feeds. TensorFlow loads
 * the library of the ops, while group and feeds are in the extension `_hopyard`;
 * neither links the other. In `hvd.init()` or a feed's dataset() the extension finds
 * the loaded library and passes this table to it; until then the ops fail with a
 * message.
 */
#ifndef HY_TENSORFLOW_TENSORFLOW_H
#define HY_TENSORFLOW_TENSORFLOW_H

#include "collective/collective.h"
#include "feed/feed.h"

#define HY_BRIDGE_VERSION 4
#define HY_BRIDGE_ATTACH "hy_tensorflow_attach"

struct hy_bridge {
    uint32_t version;
    /* hy_group_start, hy_group_wait and hy_group_rank ... of the process's group; -ENOTCONN without a group.
     * A ticket is unique in the process, even among later groups: a Wait may come long after. */
    int64_t (*start)(const struct hy_request *request, struct hy_err *err);
    int64_t (*wait)(int64_t ticket, struct hy_err *err);
    int (*poll)(int64_t ticket, int timeout_ms); /* hy_group_poll_for; 1 without a group: `wait` returns the error */
    int (*query)(int what); /* enum hy_bridge_query */
    /* hy_batch_stream_next */
    int (*batch)(int64_t feed, const struct hy_gather_sink *sink, struct hy_gathered *ret, struct hy_err *err);
};

enum hy_bridge_query {
    HY_QUERY_RANK,
    HY_QUERY_SIZE,
    HY_QUERY_LOCAL_RANK,
    HY_QUERY_LOCAL_SIZE,
    HY_QUERY_CROSS_RANK,
    HY_QUERY_CROSS_SIZE,
};

/* 0, or -EPROTO: another version. `bridge` must stay valid until the process exits; NULL detaches it. */
typedef int hy_tensorflow_attach_fn(const struct hy_bridge *bridge);

#endif
