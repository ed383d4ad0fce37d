/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks of one host, for e2e/test_mesh_namespaces.py:
 *
 *     ranks HOST FIRST COUNT SIZE check|loop
 *
 * Prints a line "HOST BELL PORT ADDRESS..." for each of its ranks, reads the lines of all SIZE ranks, then forks COUNT
 * ranks. `check` makes every call once and exits; `loop` runs allreduces until one fails and prints its error:
 * "rank 2: the message". Every rank prints "rank 2 turn 7" from time to time.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/mem.h"
#include "collective/comm/comm.h"

#define MANY 128
#define LINE 1000
#define ADDRESSES 16
#define LARGE (256u << 10) /* elements */

struct host {
    unsigned host, first, count, size;
    int shm_fd;
    int listeners[MANY], bells[MANY];
    struct hy_comm_member members[MANY];
    char lines[MANY][LINE]; /* the fields point into these */
    const char *addresses[MANY][ADDRESSES];
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "ranks: %s\n", what);
    exit(2);
}

/* ---- rendezvous -------------------------------------------------------------------------- */

static void announce(struct host *h, unsigned i)
{
    char bell[HY_BELL_MAX], **addresses;
    struct hy_err err;
    uint16_t port;
    size_t count;

    h->bells[i] = hy_bell_open(bell, &err);
    if (h->bells[i] >= 0)
        h->listeners[i] = hy_mesh_listen(&port, &addresses, &count, &err);
    if (h->bells[i] < 0 || h->listeners[i] < 0)
        die(err.text);
    printf("%u %s %u", h->host, bell, port);
    for (size_t k = 0; k < count; k++) {
        printf(" %s", addresses[k]);
        free(addresses[k]);
    }
    printf("\n");
    free(addresses);
}

static void read_member(struct host *h, unsigned rank)
{
    struct hy_comm_member *member = &h->members[rank];
    char *line = h->lines[rank], *word, *rest;

    if (!fgets(line, LINE, stdin))
        die("the roster is too short");
    member->host = (unsigned)atoi(strtok_r(line, " \n", &rest));
    member->bell = strtok_r(NULL, " \n", &rest);
    member->tcp.port = (uint16_t)atoi(strtok_r(NULL, " \n", &rest));
    while ((word = strtok_r(NULL, " \n", &rest)) && member->tcp.address_count < ADDRESSES)
        h->addresses[rank][member->tcp.address_count++] = word;
    member->tcp.addresses = h->addresses[rank];
}

static struct hy_comm *join(struct host *h, unsigned i)
{
    struct hy_comm_spec spec = {.rank = h->first + i,
                                .size = h->size,
                                .members = h->members,
                                .shm_fd = h->shm_fd,
                                .listen_fd = h->listeners[i],
                                .waiter = {.bell = h->bells[i], .watch_fd = -1}};
    struct hy_comm *comm;
    struct hy_err err;

    for (unsigned k = 0; k < h->count; k++)
        if (k != i) {
            close(h->listeners[k]);
            close(h->bells[k]);
        }
    if (hy_comm_open(&spec, &comm, &err) < 0)
        die(err.text);
    return comm;
}

/* ---- a rank ----------------------------------------------------------------- */

static int allreduce(struct hy_set *all, float *numbers, size_t count)
{
    unsigned rank = hy_set_index(all), size = hy_set_size(all);
    int rc;

    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)(i % 100 + rank);
    rc = hy_set_allreduce(all, numbers, numbers, count, HY_F32, HY_SUM, 1, 1);
    for (size_t i = 0; i < count && rc == 0; i++)
        if (numbers[i] != (float)(i % 100 * size + (size_t)size * (size - 1) / 2))
            die("a wrong sum");
    return rc;
}

static int broadcast(struct hy_set *all, float *numbers, unsigned root)
{
    int rc;

    for (size_t i = 0; i < LARGE; i++)
        numbers[i] = hy_set_index(all) == root ? (float)i : -1;
    rc = hy_set_broadcast(all, numbers, LARGE * sizeof *numbers, root);
    for (size_t i = 0; i < LARGE && rc == 0; i++)
        if (numbers[i] != (float)i)
            die("a wrong broadcast");
    return rc;
}

static int allgather(struct hy_set *all)
{
    uint32_t own[16], every[MANY * 16];
    size_t sizes[MANY], offsets[MANY];
    int rc;

    for (unsigned i = 0; i < MANY; i++) {
        sizes[i] = sizeof own;
        offsets[i] = i * sizeof own;
    }
    for (unsigned i = 0; i < 16; i++)
        own[i] = hy_set_index(all) * 16 + i;
    rc = hy_set_allgather(all, own, every, sizes, offsets);
    for (unsigned i = 0; i < hy_set_size(all) * 16 && rc == 0; i++)
        if (every[i] != i)
            die("a wrong allgather");
    return rc;
}

/* Rank i gets i + 1 bytes from every rank. */
static int alltoall(struct hy_set *all)
{
    static size_t matrix[MANY * MANY];
    static uint8_t in[MANY * (MANY + 1) / 2], out[MANY * (MANY + 1)];
    unsigned size = hy_set_size(all), rank = hy_set_index(all);
    int rc;

    for (unsigned i = 0; i < size * size; i++)
        matrix[i] = i % size + 1;
    memset(in, (int)rank, sizeof in);
    rc = hy_set_alltoall(all, in, out, matrix);
    for (unsigned i = 0; i < size * (rank + 1) && rc == 0; i++)
        if (out[i] != i / (rank + 1))
            die("a wrong alltoall");
    return rc;
}

static int check(struct hy_set *all, float *numbers)
{
    static const size_t counts[] = {1, 1000, 50000, LARGE};
    int rc = hy_set_barrier(all);

    for (size_t i = 0; i < HY_COUNT(counts) && rc == 0; i++)
        rc = allreduce(all, numbers, counts[i]);
    if (rc == 0)
        rc = broadcast(all, numbers, hy_set_size(all) - 1);
    if (rc == 0)
        rc = allgather(all);
    if (rc == 0)
        rc = alltoall(all);
    return rc < 0 ? rc : hy_set_barrier(all);
}

static int loop(struct hy_set *all, float *numbers, unsigned rank)
{
    int rc = 0;

    for (unsigned turn = 0; rc == 0; turn++) {
        rc = allreduce(all, numbers, turn % 2 ? 100 : LARGE);
        if (rc == 0 && turn % 10 == 0)
            dprintf(1, "rank %u turn %u\n", rank, turn);
    }
    return rc;
}

static int be_rank(struct host *h, unsigned i, bool once)
{
    struct hy_comm *comm = join(h, i);
    unsigned everyone[MANY];
    float *numbers = malloc(LARGE * sizeof *numbers);
    struct hy_set *all;
    struct hy_err err;
    int rc;

    for (unsigned k = 0; k < h->size; k++)
        everyone[k] = k;
    if (!numbers || hy_set_open(comm, 0, everyone, h->size, &all, &err) < 0)
        die("no set");
    rc = once ? check(all, numbers) : loop(all, numbers, h->first + i);
    if (rc < 0)
        dprintf(1, "rank %u: %s\n", h->first + i, hy_comm_error(comm)->text);
    hy_set_close(all);
    hy_comm_close(comm);
    free(numbers);
    return rc < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
    static struct host h;
    int status, bad = 0;

    if (argc != 6)
        die("usage: ranks HOST FIRST COUNT SIZE check|loop");
    h.host = (unsigned)atoi(argv[1]);
    h.first = (unsigned)atoi(argv[2]);
    h.count = (unsigned)atoi(argv[3]);
    h.size = (unsigned)atoi(argv[4]);
    h.shm_fd = memfd_create("ranks", MFD_CLOEXEC);
    if (h.size > MANY || h.shm_fd < 0 || ftruncate(h.shm_fd, (off_t)hy_shm_size(h.count)) < 0)
        die("no room for so many ranks");
    for (unsigned i = 0; i < h.count; i++)
        announce(&h, i);
    fflush(stdout);
    for (unsigned i = 0; i < h.size; i++)
        read_member(&h, i);
    for (unsigned i = 0; i < h.count; i++) {
        pid_t pid = fork();

        if (pid < 0 || (pid == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) < 0))
            die("no process");
        if (pid == 0)
            _exit(be_rank(&h, i, strcmp(argv[5], "check") == 0));
        close(h.listeners[i]);
        close(h.bells[i]);
    }
    while (wait(&status) > 0)
        bad |= status;
    return bad != 0;
}
