/* SPDX-License-Identifier: Apache-2.0 */
/* standby: finding an agent, handing it over, and asking it to exit. */
#include "fds.h"
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "wire/wire.h"

#define CLIENT "4711:123456"

static char dir[64];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/hopyard-standby-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    return setenv("XDG_RUNTIME_DIR", dir, 1);
}

static int remove_dir(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof command, "rm -r %s", dir);
    return system(command);
}

static Hy__Handover order(uint8_t key[HY_KEY_SIZE])
{
    Hy__Handover h = HY__HANDOVER__INIT;

    memset(key, 7, HY_KEY_SIZE);
    h.identity = (char *)"agent-1";
    h.key = (ProtobufCBinaryData){HY_KEY_SIZE, key};
    h.port = 4242;
    h.slots = 3;
    h.open_files = 1024;
    h.name = (char *)"local";
    return h;
}

/* Any two files, in place of the log and the lock. */
static void open_two(int fds[2])
{
    fds[0] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    fds[1] = open("/", O_RDONLY | O_CLOEXEC);
    assert_true(fds[0] >= 0 && fds[1] >= 0);
}

static void close_two(const int fds[2])
{
    close(fds[0]);
    close(fds[1]);
}

HY_TEST_WITH(test_an_agent_is_handed_over_with_a_log_and_a_lock, make_dir, remove_dir)
{
    hy_cleanup_free char *path = NULL;
    uint8_t key[HY_KEY_SIZE];
    Hy__Handover sent = order(key), *got = NULL;
    int socket = hy_standby_open(CLIENT, "key", &path), given[2], taken[2], pidfd;
    struct stat root, seen;

    assert_true(socket >= 0);
    open_two(given);
    assert_int_equal(hy_standby_receive(socket, &got, taken), -EAGAIN);
    pidfd = hy_standby_take(CLIENT, "key", &sent, given);
    assert_true(pidfd >= 0);
    assert_int_equal(hy_standby_receive(socket, &got, taken), 1);
    assert_string_equal(got->identity, "agent-1");
    assert_memory_equal(got->key.data, key, HY_KEY_SIZE);
    assert_true(got->port == 4242 && got->slots == 3 && got->open_files == 1024 && !strcmp(got->name, "local"));
    assert_true(stat("/", &root) == 0 && fstat(taken[1], &seen) == 0 && root.st_ino == seen.st_ino);
    assert_int_equal(fcntl(taken[0], F_GETFD), FD_CLOEXEC);
    hy__handover__free_unpacked(got, NULL);
    close_two(taken);
    close_two(given);
    close(pidfd);
    close(socket);
    unlink(path);
}

HY_TEST_WITH(test_another_key_or_client_is_refused_and_outdated_agents_are_asked_to_exit, make_dir, remove_dir)
{
    hy_cleanup_free char *path = NULL;
    uint8_t key[HY_KEY_SIZE];
    Hy__Handover sent = order(key), *got = NULL;
    int socket = hy_standby_open(CLIENT, "key", &path), given[2], taken[2];

    open_two(given);
    assert_int_equal(hy_standby_take("4712:1", "key", &sent, given), -ENOENT);
    assert_int_equal(hy_standby_receive(socket, &got, taken), -EAGAIN);
    assert_int_equal(hy_standby_take("4711:99", "key", &sent, given), -ENOENT); /* the process ID was reused */
    assert_int_equal(hy_standby_receive(socket, &got, taken), 0);
    assert_int_equal(hy_standby_take(CLIENT, "other", &sent, given), -ENOENT);
    assert_int_equal(hy_standby_receive(socket, &got, taken), 0);
    close_two(given);
    close(socket);
    unlink(path);
}

HY_TEST_WITH(test_a_stale_socket_is_not_used, make_dir, remove_dir)
{
    hy_cleanup_free char *path = NULL;
    uint8_t key[HY_KEY_SIZE];
    Hy__Handover sent = order(key);
    int given[2];

    open_two(given);
    assert_int_equal(hy_standby_take(CLIENT, "key", &sent, given), -ENOENT);
    close(hy_standby_open(CLIENT, "key", &path));
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(hy_standby_take(CLIENT, "key", &sent, given), -ENOENT);
    close_two(given);
    free(path);
    close(hy_standby_open(CLIENT, "key", &path)); /* the file of an earlier process with this process ID is replaced */
    assert_int_equal(unlink(path), 0);
}

static void send_bytes(const char *path, const void *bytes, size_t n)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, path);
    assert_int_equal(sendto(fd, bytes, n, 0, (struct sockaddr *)&address, sizeof address), n);
    close(fd);
}

HY_TEST_WITH(test_invalid_messages_are_refused, make_dir, remove_dir)
{
    static uint8_t much[8000];
    hy_cleanup_free char *path = NULL;
    uint8_t key[HY_KEY_SIZE], bytes[400];
    Hy__Handover h = order(key), *got = NULL;
    int socket = hy_standby_open(CLIENT, "key", &path), taken[2];
    size_t n = hy__handover__pack(&h, bytes);

    for (size_t cut = 0; cut <= n; cut++) { /* even the complete message lacks the descriptors */
        if (cut == 1)
            continue;
        send_bytes(path, bytes, cut);
        assert_int_equal(hy_standby_receive(socket, &got, taken), -EPROTO);
    }
    send_bytes(path, much, sizeof much);
    assert_int_equal(hy_standby_receive(socket, &got, taken), -EPROTO);
    send_bytes(path, "x", 1);
    assert_int_equal(hy_standby_receive(socket, &got, taken), -EPROTO);
    send_bytes(path, "e", 1);
    assert_int_equal(hy_standby_receive(socket, &got, taken), 0);
    close(socket);
    unlink(path);
}

/* The order is complete, and one of its fields is not what an agent can work with. */
HY_TEST_WITH(test_orders_with_invalid_fields_are_refused, make_dir, remove_dir)
{
    hy_cleanup_free char *path = NULL;
    int socket = hy_standby_open(CLIENT, "key", &path), given[2], taken[2], before;

    open_two(given);
    before = count_fds();
    for (int i = 0; i < 6; i++) {
        uint8_t key[HY_KEY_SIZE];
        Hy__Handover h = order(key), *got = NULL;
        int pidfd;

        h.key.len -= i == 0;
        h.port = i == 1 ? 0 : i == 2 ? UINT16_MAX + 1 : 1;
        h.slots = i == 3 ? 0 : 1;
        h.identity = (char *)(i == 4 ? "" : "agent-1");
        h.name = (char *)(i == 5 ? "" : "local");
        pidfd = hy_standby_take(CLIENT, "key", &h, given);
        assert_true(pidfd >= 0);
        close(pidfd);
        assert_int_equal(hy_standby_receive(socket, &got, taken), -EPROTO);
    }
    assert_int_equal(count_fds(), before); /* the descriptors that came along are closed */
    close_two(given);
    close(socket);
    unlink(path);
}

HY_TEST_WITH(test_an_order_that_does_not_fit_into_a_message_is_not_sent, make_dir, remove_dir)
{
    static char much[8000];
    hy_cleanup_free char *path = NULL;
    uint8_t key[HY_KEY_SIZE];
    Hy__Handover h = order(key), *got = NULL;
    int socket = hy_standby_open(CLIENT, "key", &path), given[2], taken[2];

    memset(much, 'x', sizeof much - 1);
    h.name = much;
    open_two(given);
    assert_int_equal(hy_standby_take(CLIENT, "key", &h, given), -EMSGSIZE);
    assert_int_equal(hy_standby_receive(socket, &got, taken), -EAGAIN);
    close_two(given);
    close(socket);
    unlink(path);
}

static int hand_over_and_end(void *arg)
{
    hy_cleanup_free char *path = NULL;
    uint8_t key[HY_KEY_SIZE];
    Hy__Handover sent = order(key), *got = NULL;
    int socket = hy_standby_open(CLIENT, "key", &path), taken[2], pidfd, rc;

    if (socket < 0)
        return socket;
    pidfd = rc = hy_standby_take(CLIENT, "key", &sent, arg);
    if (rc >= 0)
        rc = hy_standby_receive(socket, &got, taken);
    if (rc == 1) {
        hy__handover__free_unpacked(got, NULL);
        close_two(taken);
        rc = hy_standby_end(&(struct hy_standby){.path = path});
        if (rc == 0)
            rc = hy_standby_receive(socket, &got, taken);
    }
    if (pidfd >= 0)
        close(pidfd);
    close(socket);
    unlink(path);
    return rc;
}

HY_TEST_WITH(test_a_handover_survives_every_fault, make_dir, remove_dir)
{
    int given[2], before;

    open_two(given);
    before = count_fds();
    hy_each_fault(HY_SEAM_ALLOC, hand_over_and_end, given);
    hy_each_fault(HY_SEAM_SYS, hand_over_and_end, given);
    assert_int_equal(count_fds(), before);
    close_two(given);
}

/* The path of a socket has at most 107 bytes. */
HY_TEST_WITH(test_a_runtime_directory_with_a_long_name_has_no_standby, make_dir, remove_dir)
{
    hy_cleanup_free char *longer = hy_asprintf("%s/%0100d", dir, 0), *path = NULL;

    assert_int_equal(mkdir(longer, 0700), 0);
    assert_int_equal(setenv("XDG_RUNTIME_DIR", longer, 1), 0);
    assert_int_equal(hy_standby_open(CLIENT, "key", &path), -ENAMETOOLONG);
    assert_null(path);
}

static int send_as_another_user(const char *path)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        if (chmod(dir, 0777) < 0 || setuid(65534) < 0)
            _exit(2);
        send_bytes(path, "e", 1);
        _exit(0);
    }
    return waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1;
}

HY_TEST_WITH(test_messages_of_another_user_are_refused, make_dir, remove_dir)
{
    hy_cleanup_free char *path = NULL, *runtime_dir = NULL;
    Hy__Handover *got = NULL;
    int socket, taken[2];

    hy_need_root("to become another user");
    socket = hy_standby_open(CLIENT, "key", &path);
    runtime_dir = hy_asprintf("%s/hopyard", dir);
    assert_true(chmod(runtime_dir, 0777) == 0 && chmod(path, 0777) == 0);
    assert_int_equal(send_as_another_user(path), 0);
    assert_int_equal(hy_standby_receive(socket, &got, taken), -EPERM);
    assert_int_equal(chmod(runtime_dir, 0700), 0);
    close(socket);
    unlink(path);
}

static void count(void *arg, const struct hy_standby *s)
{
    int *found = arg;

    assert_int_equal(s->client, 4711);
    assert_int_equal(s->agent, getpid());
    assert_true(s->key == hy_standby_key(CLIENT, "key"));
    ++*found;
}

HY_TEST_WITH(test_all_agents_on_standby_are_listed, make_dir, remove_dir)
{
    static const char *const invalid[] = {"standby-1-2-3.sock", "standby-4711-0000000000000001--5.sock",
                                          "standby-.sock", "standby-4711-00000000000000010-5.sock"};
    hy_cleanup_free char *path = NULL;
    int socket = hy_standby_open(CLIENT, "key", &path), found = 0;

    for (size_t i = 0; i < HY_COUNT(invalid); i++) {
        hy_cleanup_free char *other = hy_asprintf("%s/hopyard/%s", dir, invalid[i]);

        close(open(other, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    }
    assert_int_equal(hy_standby_each(count, &found), 0);
    assert_int_equal(found, 1);
    close(socket);
    unlink(path);
}
