/* SPDX-License-Identifier: Apache-2.0 */
/* Port reservations. */
#include "support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/port_reservation.h"

static struct hy_port reserve(uint16_t wanted)
{
    struct hy_err err = {0};
    struct hy_port port = {.fd = -1, .claim = -1};

    if (hy_port_reserve(wanted, &port, &err) < 0)
        fail_msg("%s", err.text);
    return port;
}

/* Like Python's servers. */
static int serve(uint16_t port, in_addr_t address)
{
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&where, sizeof where), 0);
    assert_int_equal(listen(fd, 8), 0);
    return fd;
}

static void assert_taken(uint16_t wanted, const char *words)
{
    struct hy_port port;
    struct hy_err err = {0};

    assert_int_equal(hy_port_reserve(wanted, &port, &err), -EADDRINUSE);
    if (!strstr(err.text, words))
        fail_msg("not '%s' but '%s'", words, err.text);
}

HY_TEST(test_only_the_server_can_bind_a_reserved_port)
{
    struct hy_port port = reserve(0);
    struct hy_port_owner who;
    int server;

    assert_true(port.number > 0);
    assert_false(hy_port_answers(port.number));
    hy_port_find_owner(port.number, &who);
    assert_false(who.there);
    assert_taken(port.number, "is in use; choose another port"); /* another hopyard */
    server = serve(port.number, INADDR_LOOPBACK);
    assert_true(hy_port_answers(port.number));
    hy_port_release(&port);
    assert_true(hy_port_answers(port.number));
    hy_port_find_owner(port.number, &who);
    assert_true(who.there);
    assert_int_equal(who.pid, getpid());
    assert_string_equal(who.name, "test_port");
    close(server);
}

HY_TEST(test_the_owner_of_a_port_is_found)
{
    static const in_addr_t addresses[] = {INADDR_LOOPBACK, INADDR_ANY};
    char words[64];

    snprintf(words, sizeof words, "in use by process %ld (test_port)", (long)getpid());
    for (size_t i = 0; i < HY_COUNT(addresses); i++) {
        struct hy_port port = reserve(0);
        uint16_t number = port.number;
        int server;

        hy_port_release(&port);
        server = serve(number, addresses[i]);
        assert_taken(number, words);
        close(server);
    }
}

HY_TEST(test_a_released_port_can_be_reserved_again)
{
    struct hy_port port = reserve(0), again;

    hy_port_release(&port);
    hy_port_release(&port);
    again = reserve(port.number);
    assert_int_equal(again.number, port.number);
    hy_port_release(&again);
}

HY_TEST(test_a_port_in_time_wait_can_be_reserved)
{
    struct hy_port port = reserve(0);
    struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons(port.number)};
    int server = serve(port.number, INADDR_LOOPBACK), client = socket(AF_INET, SOCK_STREAM, 0), accepted;

    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    hy_port_release(&port);
    assert_int_equal(connect(client, (struct sockaddr *)&where, sizeof where), 0);
    accepted = accept(server, NULL, NULL);
    assert_true(accepted >= 0);
    close(accepted); /* first, so that the kernel keeps it in TIME_WAIT */
    close(client);
    close(server);
    port = reserve(port.number);
    hy_port_release(&port);
}
