/* SPDX-License-Identifier: Apache-2.0 */
/* Messages to and from a driver. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/mem.h"
#include "client/client.h"
#include "driver/driver.h"
#include "wire/wire.h"

int hy_client_connect(struct hy_store *s, int64_t run, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_driver_socket(hy_store_dir_path(s), run, err);

    return path ? hy_local_connect(path, err) : err->code;
}

int hy_client_connect_within(struct hy_store *s, int64_t run, int timeout_ms, struct hy_err *err)
{
    hy_cleanup_free char *path = hy_driver_socket(hy_store_dir_path(s), run, err);

    return path ? hy_local_connect_within(path, timeout_ms, err) : err->code;
}

static int put(int fd, const Hy__ClientRequest *request)
{
    uint8_t bytes[2048]; /* the longest field is an error message */
    size_t n = hy__client_request__get_packed_size(request);

    return n <= sizeof bytes ? hy_local_put(fd, bytes, hy__client_request__pack(request, bytes)) : -E2BIG;
}

int hy_client_watch(int fd, bool trials)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__Watch watch = HY__WATCH__INIT;

    watch.trials = trials;
    request.body_case = HY__CLIENT_REQUEST__BODY_WATCH;
    request.watch = &watch;
    return put(fd, &request);
}

int hy_client_ask_status(int fd)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__AskStatus status = HY__ASK_STATUS__INIT;

    request.body_case = HY__CLIENT_REQUEST__BODY_STATUS;
    request.status = &status;
    return put(fd, &request);
}

int hy_client_stop(int fd, bool feed)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__StopRun stop = HY__STOP_RUN__INIT;

    stop.feed = feed;
    request.body_case = HY__CLIENT_REQUEST__BODY_STOP;
    request.stop = &stop;
    return put(fd, &request);
}

int hy_client_announce(int fd, const char *tensorboard)
{
    Hy__ClientRequest request = HY__CLIENT_REQUEST__INIT;
    Hy__Announce announce = HY__ANNOUNCE__INIT;

    announce.tensorboard = (char *)tensorboard;
    request.body_case = HY__CLIENT_REQUEST__BODY_ANNOUNCE;
    request.announce = &announce;
    return put(fd, &request);
}

int hy_client_next(int fd, struct hy_buf *rest, struct hy_buf *message, int timeout_ms, Hy__ClientAnswer **ret)
{
    int rc = hy_local_get(fd, rest, message, timeout_ms);

    if (rc <= 0)
        return rc;
    *ret = hy__client_answer__unpack(&hy_proto_memory, message->len, hy_buf_bytes(message));
    return *ret ? 1 : -EPROTO;
}
