/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hopyard supply`: connects a driver to a program that starts agents for it,
 * because only that program can: a Python process with a SparkSession. Messages
 * are lines of JSON.
 *
 *   out   {"start": 3, "name": "agent 3", "identity": "…", "key": "…", "join": "HOST:PORT"}
 *         {"stop": 3}
 *   in    {"offer": 4, "what": "Spark app-1", "note": "", "more": false, "parallel": 0}; again when the number changes
 *         {"over": 3, "why": "executor 1 on b was lost"}; with "lives": true the agent ends with its connection,
 *         with "died": true a signal killed it while its executor stayed up
 *
 * The command exits when the program closes standard input, and with status 0
 * when the driver exits.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/project.h"
#include "cli/commands.h"
#include "view/view.h"
#include "client/client.h"
#include "cli/watch.h"
#include "wire/wire.h"

#define LINE_MAX_BYTES (64u << 10)

struct supply {
    int driver;
    struct hy_buf rest, message; /* from the driver */
    struct hy_buf line;          /* from the program */
};

static int forward(const Hy__ClientAnswer *answer, struct hy_err *err)
{
    hy_cleanup_out struct hy_out out = {0};
    struct hy_style style = {0};

    if (answer->body_case == HY__CLIENT_ANSWER__BODY_ERROR)
        return hy_err_set(err, -EBUSY, "%s", answer->error);
    if (answer->body_case != HY__CLIENT_ANSWER__BODY_START && answer->body_case != HY__CLIENT_ANSWER__BODY_STOP)
        return 0;
    hy_out_init(&out, &style);
    hy_json_line_take(&out, hy_supply_order_line(answer));
    return hy_out_flush(&out, STDOUT_FILENO);
}

/* Forwards all messages that have arrived. 1: there may be more; 0: the driver has exited. */
static int read_driver(struct supply *s, struct hy_err *err)
{
    Hy__ClientAnswer *answer;
    int rc;

    while ((rc = hy_client_next(s->driver, &s->rest, &s->message, 0, &answer)) > 0) {
        rc = forward(answer, err);
        hy__client_answer__free_unpacked(answer, &hy_proto_memory);
        if (rc < 0)
            return rc;
    }
    return rc == -EAGAIN || rc == -EINTR ? 1 : rc;
}

static int take_line(struct supply *s, const char *text, size_t n)
{
    struct hy_supply_line line;
    int rc = hy_supply_parse(text, n, &line);

    if (rc < 0)
        return rc;
    rc = line.is_offer ? hy_client_supply(s->driver, &line.offer) : hy_client_agent_ended(s->driver, &line);
    hy_supply_line_done(&line);
    return rc;
}

/* 1: there may be more; 0: the program has ended. */
static int read_program(struct supply *s)
{
    uint8_t *room = hy_buf_reserve(&s->line, 4096);
    ssize_t n = room ? read(STDIN_FILENO, room, 4096) : -1;
    const char *newline;
    int rc = 0;

    if (!room)
        return -ENOMEM;
    if (n <= 0)
        return n == 0 ? 0 : errno == EINTR ? 1 : -errno;
    hy_buf_added(&s->line, (size_t)n);
    while (rc == 0 && (newline = memchr(hy_buf_bytes(&s->line), '\n', s->line.len))) {
        size_t length = (size_t)(newline - (const char *)hy_buf_bytes(&s->line));

        rc = take_line(s, (const char *)hy_buf_bytes(&s->line), length);
        hy_buf_consume(&s->line, length + 1);
    }
    return rc < 0 ? rc : 1;
}

static int supply(struct supply *s, struct hy_err *err)
{
    int rc = 1;

    while (rc > 0) {
        struct pollfd fds[] = {{.fd = s->driver, .events = POLLIN}, {.fd = STDIN_FILENO, .events = POLLIN}};

        if (poll(fds, HY_COUNT(fds), -1) < 0 && errno != EINTR)
            return -errno;
        if (fds[1].revents)
            rc = read_program(s);
        if (rc > 0 && fds[0].revents)
            rc = read_driver(s, err);
    }
    return rc;
}

static int find_run(const struct hy_args *args, struct supply *s, struct hy_err *err)
{
    hy_cleanup_free char *project = hy_project(args, err);
    struct hy_store *store = NULL;
    int64_t run = 0;
    int rc = project ? hy_store_open(project, HY_STORE_READ, &store, err) : err->code;

    if (rc == 0)
        rc = hy_store_run_find(store, hy_args_word(args, 0), &run, err);
    if (rc == 0)
        rc = s->driver = hy_client_connect(store, run, err);
    hy_store_close(store);
    return rc < 0 ? rc : 0;
}

int hy_cmd_supply(const struct hy_args *args)
{
    struct supply s = {.driver = -1};
    struct hy_err err = {0};
    int rc;

    hy_buf_init(&s.rest, HY_LOCAL_MAX);
    hy_buf_init(&s.message, HY_LOCAL_MAX);
    hy_buf_init(&s.line, LINE_MAX_BYTES);
    rc = find_run(args, &s, &err);
    if (rc == 0 && hy_args_has(args, "feeds"))
        rc = hy_client_hold_feed(s.driver);
    if (rc == 0)
        rc = supply(&s, &err);
    if (rc < 0 && !err.code)
        hy_err_sys(&err, rc, "the connection between the driver and the program that starts its agents failed");
    hy_close_at(&s.driver);
    hy_buf_done(&s.rest);
    hy_buf_done(&s.message);
    hy_buf_done(&s.line);
    return rc < 0 ? hy_cmd_failed(args, &err) : HY_EXIT_OK;
}
