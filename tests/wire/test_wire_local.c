/* SPDX-License-Identifier: Apache-2.0 */
/* Local sockets, between processes of one user. */
#include <stdatomic.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "wire_echo_server.h"

HY_TEST_WITH(test_local_messages_of_every_size_are_echoed, NULL, log_restore)
{
    struct echo_server r;
    struct stat st;

    assert_int_equal(echo_init(&r), 0);
    assert_int_equal(stat(r.dir.file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(echo_run_client(&r, client_sends_all_sizes), 0);
    assert_int_equal(r.messages, 7);
    echo_done(&r);
}

static int client_reads_to_the_end(int fd, struct hy_buf *rest, struct hy_buf *message)
{
    static uint8_t bytes[1000000];
    int count = 0, rc = hy_local_put(fd, bytes, sizeof bytes);

    while (rc == 0 && (rc = hy_local_get(fd, rest, message, -1)) == 1) {
        count += message->len == sizeof bytes;
        rc = 0;
    }
    return rc < 0 ? rc : count == 21 ? 0 : -EBADMSG;
}

HY_TEST_WITH(test_local_end_sends_the_queue_before_it_closes, NULL, log_restore)
{
    struct echo_server r;

    assert_int_equal(echo_init(&r), 0);
    r.repeats = 20;
    assert_int_equal(echo_run_client(&r, client_reads_to_the_end), 0);
    assert_true(r.most_pending > 1000000); /* more than the socket's buffer */
    echo_done(&r);
}

static int client_sends_garbage(int fd, struct hy_buf *rest, struct hy_buf *message)
{
    if (write(fd, "\xff\xff\xff\xff no frame at all", 20) != 20)
        return -EIO;
    return hy_local_get(fd, rest, message, -1);
}

static int client_sends_another_frame_type(int fd, struct hy_buf *rest, struct hy_buf *message)
{
    if (write(fd, "\x00\x00\x00\x00\x01\x04\x00\x00\x00\x00\x00\x00", 12) != 12)
        return -EIO;
    return hy_local_get(fd, rest, message, -1);
}

static int client_sends_a_partial_frame(int fd, struct hy_buf *rest, struct hy_buf *message)
{
    (void)rest;
    (void)message;
    return write(fd, "\x09\x00\x00\x00\x01\x06", 6) == 6 ? 0 : -EIO;
}

HY_TEST_WITH(test_local_garbage_is_dropped_with_one_log_line, NULL, log_restore)
{
    struct echo_server r;

    assert_int_equal(echo_init(&r), 0);
    log_begin();
    assert_int_equal(echo_run_client(&r, client_sends_garbage), 0);
    assert_int_equal(echo_run_client(&r, client_sends_another_frame_type), 0);
    assert_int_equal(echo_run_client(&r, client_sends_a_partial_frame), 0);
    while (r.closes < 3)
        uv_run(&r.loop, UV_RUN_ONCE);
    assert_int_equal(log_count("local connection dropped"), 2); /* closing early is not an error */
    assert_int_equal(log_count(""), 2);
    log_end();
    assert_int_equal(r.messages, 0);
    echo_done(&r);
}

HY_TEST_WITH(test_a_local_client_detects_an_incomplete_message, NULL, log_restore)
{
    hy_cleanup_buf struct hy_buf rest, message;
    int pair[2];

    hy_buf_init(&rest, SIZE_MAX);
    hy_buf_init(&message, SIZE_MAX);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(hy_local_put(pair[0], some_bytes, 10), 0);
    assert_int_equal(hy_local_put(pair[0], some_bytes, 4), 0);
    assert_int_equal(write(pair[0], "\x09\x00\x00\x00\x01\x06", 6), 6);
    assert_int_equal(hy_local_get(pair[1], &rest, &message, -1), 1);
    assert_int_equal(message.len, 10);
    assert_int_equal(hy_local_get(pair[1], &rest, &message, -1), 1);
    assert_int_equal(message.len, 4);
    assert_int_equal(hy_local_get(pair[1], &rest, &message, 1), -EAGAIN);
    close(pair[0]);
    assert_int_equal(hy_local_get(pair[1], &rest, &message, -1), -ECONNRESET);
    close(pair[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    close(pair[0]);
    hy_buf_clear(&rest);
    assert_int_equal(hy_local_get(pair[1], &rest, &message, -1), 0);
    assert_int_equal(hy_local_put(pair[1], some_bytes, 4), -EPIPE); /* and no signal */
    close(pair[1]);
}

HY_TEST_WITH(test_a_stale_socket_is_replaced_and_a_live_one_is_not, NULL, log_restore)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct hy_local *other = NULL;
    struct hy_err err = {0};
    char longer[300];
    struct echo_server r;
    int fd;

    memset(&r, 0, sizeof r);
    assert_int_equal(uv_loop_init(&r.loop), 0);
    assert_int_equal(temp_dir_make(&r.dir), 0);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", r.dir.file);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
    close(fd); /* the file remains, as after a kill -9 */
    assert_int_equal(hy_local_connect(r.dir.file, &err), -ECONNREFUSED);
    assert_non_null(strstr(err.text, "cannot connect to"));
    assert_int_equal(hy_local_listen(&r.loop, r.dir.file, &echo_events, &r, &r.local, &err), 0);
    assert_int_equal(hy_local_listen(&r.loop, r.dir.file, &echo_events, &r, &other, &err), -EADDRINUSE);
    assert_non_null(strstr(err.text, "another process listens on"));
    assert_int_equal(hy_local_listen(&r.loop, r.dir.path, &echo_events, &r, &other, &err), -EEXIST);
    memset(longer, 'x', sizeof longer);
    longer[0] = '/';
    longer[299] = '\0';
    assert_int_equal(hy_local_listen(&r.loop, longer, &echo_events, &r, &other, &err), -ENAMETOOLONG);
    assert_non_null(strstr(err.text, "has 299 bytes (the limit is 107)"));
    assert_int_equal(hy_local_connect(longer, &err), -ENAMETOOLONG);
    assert_null(other);
    echo_done(&r);
}

/* Listens at the path until it is killed, as the user 65534. */
static void listen_as_another_user(const char *path, int ready)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (setuid(65534) != 0 || bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 5) < 0 ||
        write(ready, "", 1) != 1)
        _exit(9);
    pause();
}

HY_TEST_WITH(test_nothing_is_sent_to_another_users_socket, NULL, log_restore)
{
    struct hy_err err = {0};
    struct temp_dir f;
    int ready[2], rc;
    char byte;
    pid_t pid;

    hy_need_root("to become another user");
    assert_int_equal(temp_dir_make(&f), 0);
    assert_int_equal(chmod(f.path, 0777), 0);
    assert_int_equal(pipe(ready), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        listen_as_another_user(f.file, ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    rc = hy_local_connect(f.file, &err);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(rc, -EPERM);
    assert_non_null(strstr(err.text, "another user (user ID 65534) listens on"));
    assert_int_equal(hy_remove_tree(f.path), 0);
}

/* An older driver that exits does not remove the socket of a newer one. */
HY_TEST_WITH(test_closing_does_not_remove_another_process_socket, NULL, log_restore)
{
    struct echo_server r, newer;

    assert_int_equal(echo_init(&r), 0);
    assert_int_equal(unlink(r.dir.file), 0);
    memset(&newer, 0, sizeof newer);
    assert_int_equal(hy_local_listen(&r.loop, r.dir.file, &echo_events, &newer, &newer.local, NULL), 0);
    hy_local_close(r.local);
    assert_int_equal(access(r.dir.file, F_OK), 0);
    r.local = newer.local;
    echo_done(&r);
}

/* One process, no threads: small messages fit into the socket. */
static int local_scenario(void *arg)
{
    hy_cleanup_buf struct hy_buf rest, message;
    struct echo_server r;
    int fd, rc = echo_init(&r);

    (void)arg;
    hy_buf_init(&rest, SIZE_MAX);
    hy_buf_init(&message, SIZE_MAX);
    if (rc == 0) {
        fd = rc = hy_local_connect(r.dir.file, NULL);
        for (int i = 0; rc >= 0 && i < 10; i++) {
            rc = hy_local_put(fd, some_bytes, 10);
            while (rc == 0 && (rc = hy_local_get(fd, &rest, &message, 0)) == -EAGAIN)
                rc = uv_run(&r.loop, UV_RUN_NOWAIT) < 0 ? -EIO : 0;
            if (rc == 0)
                rc = -ECONNRESET; /* the server has closed the connection */
        }
        if (fd >= 0)
            close(fd);
        rc = rc > 0 ? 0 : rc;
    }
    if (r.local) {
        echo_done(&r);
    } else {
        uv_run(&r.loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&r.loop), 0);
        hy_fault_arm(HY_SEAM_SYS, 0);
        assert_int_equal(hy_remove_tree(r.dir.path), 0);
    }
    return rc;
}

HY_TEST_WITH(test_local_sockets_fail_cleanly, NULL, log_restore)
{
    log_begin();
    hy_each_fault(HY_SEAM_ALLOC, local_scenario, NULL);
    hy_each_fault(HY_SEAM_SYS, local_scenario, NULL);
    log_end();
}
