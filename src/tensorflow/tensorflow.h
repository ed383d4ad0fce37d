/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where TensorFlow's ops meet the group, and feeds. The ops' library is loaded by
 * TensorFlow, group and feeds live in the extension `_hopyard`; neither links the
 * other. `hvd.init()` or a feed's dataset() has the extension find the library (it
 * is loaded already) and hand it this table; until then the ops fail with a
 * sentence.
 */
#ifndef HY_TENSORFLOW_TENSORFLOW_H
#define HY_TENSORFLOW_TENSORFLOW_H

#include "collective/collective.h"
#include "feed/feed.h"

#define HY_BRIDGE_VERSION 4
#define HY_BRIDGE_ATTACH "hy_tensorflow_attach"

struct hy_bridge {
    uint32_t version;
    /* As hy_group_start, hy_group_wait and hy_group_rank ... of the process's group; -ENOTCONN where there is none.
     * A ticket is never used twice in a process, not by a later group either: one may be waited for long after. */
    int64_t (*start)(const struct hy_request *request, struct hy_err *err);
    int64_t (*wait)(int64_t ticket, struct hy_err *err);
    int (*poll)(int64_t ticket, int timeout_ms); /* hy_group_poll_for; 1 where there is no group: wait tells it */
    int (*query)(int what); /* enum hy_bridge_query */
    /* hy_batch_stream_next */
    int (*batch)(int64_t feed, const struct hy_gather_sink *how, struct hy_gathered *ret, struct hy_err *err);
};

enum hy_bridge_query {
    HY_QUERY_RANK, HY_QUERY_SIZE, HY_QUERY_LOCAL_RANK, HY_QUERY_LOCAL_SIZE, HY_QUERY_CROSS_RANK, HY_QUERY_CROSS_SIZE,
};

/* 0, or -EPROTO: another version. `bridge` must last as long as the process; NULL takes it away. */
typedef int hy_tensorflow_attach_fn(const struct hy_bridge *bridge);

#endif
