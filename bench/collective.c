/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What src/collective does on one host, and what one core can copy.
 *
 *   bench_collective allreduce RANKS BATCHES SIZES                      as the table chooses
 *   bench_collective allreduce RANKS BATCHES SIZES WAY SEGMENT AHEAD OUT
 *                                         so (WAY: direct, slices; OUT: 1 for results past the caches)
 *   bench_collective memcpy BATCHES SIZES                               "BYTES SECONDS", as all do
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allreduce_loop.h"
#include "collective/shm/shm_set.h"

struct own_side {
    struct hy_shm_set *set;
    const struct hy_choice *choice; /* NULL: the table's */
};

static void die(const char *what)
{
    fprintf(stderr, "bench_collective: %s\n", what);
    exit(1);
}

static void allreduce(void *arg, const float *in, float *out, size_t count)
{
    struct own_side *own = arg;
    int rc = own->choice ? hy_shm_allreduce_by(own->set, in, out, count, HY_F32, HY_SUM, 1, 1, own->choice)
                         : hy_shm_allreduce(own->set, in, out, count, HY_F32, HY_SUM, 1, 1);

    if (rc < 0)
        die("an allreduce failed");
}

static void barrier(void *arg)
{
    struct own_side *own = arg;

    if (hy_shm_barrier(own->set) < 0)
        die("a barrier failed");
}

/* ---- ranks -------------------------------------------------------------------------- */

struct host {
    int fd;
    unsigned ranks;
    int bells[HY_LOCAL_MAX_RANKS];
    char names[HY_LOCAL_MAX_RANKS][HY_BELL_MAX];
};

static void open_host(struct host *h)
{
    h->fd = memfd_create("bench", MFD_CLOEXEC);
    if (h->fd < 0 || ftruncate(h->fd, (off_t)hy_shm_size(h->ranks)) < 0)
        die("no shared memory");
    for (unsigned i = 0; i < h->ranks; i++)
        if ((h->bells[i] = hy_bell_open(h->names[i], NULL)) < 0)
            die("no bell");
}

static void be_rank(const struct host *h, unsigned rank, int batches, const char *sizes, const struct hy_choice *choice)
{
    struct hy_waiter waiter = {.bell = h->bells[rank], .watch_fd = -1};
    struct own_side own = {.choice = choice};
    struct side s = {.rank = (int)rank, .ranks = (int)h->ranks, .batches = batches, .allreduce = allreduce,
                     .barrier = barrier, .arg = &own};
    const char *names[HY_LOCAL_MAX_RANKS];
    unsigned all[HY_LOCAL_MAX_RANKS];
    struct hy_shm *shm;

    for (unsigned i = 0; i < h->ranks; i++) {
        names[i] = h->names[i];
        all[i] = i;
    }
    if (hy_shm_open(h->fd, rank, h->ranks, names, &waiter, &shm, NULL) < 0 ||
        hy_shm_set_open(shm, 0, all, h->ranks, &own.set) < 0)
        die("a rank cannot begin");
    time_sizes(&s, sizes);
    hy_shm_set_close(own.set);
    hy_shm_close(shm);
}

static int run_ranks(unsigned ranks, int batches, const char *sizes, const struct hy_choice *choice)
{
    static struct host h;
    int failed = 0;

    h.ranks = ranks;
    open_host(&h);
    for (unsigned i = 0; i < ranks; i++) {
        pid_t pid = fork();

        if (pid < 0)
            die("cannot fork");
        if (pid == 0) {
            be_rank(&h, i, batches, sizes, choice);
            exit(0);
        }
    }
    for (unsigned i = 0; i < ranks; i++) {
        int status = 1;

        failed |= wait(&status) < 0 || status != 0;
    }
    return failed;
}

static int time_allreduce(int argc, char **argv)
{
    struct hy_choice choice;
    int ranks = atoi(argv[2]);

    if (ranks < 1 || ranks > (int)HY_LOCAL_MAX_RANKS)
        die("so many ranks cannot be");
    if (argc == 5)
        return run_ranks((unsigned)ranks, atoi(argv[3]), argv[4], NULL);
    choice = (struct hy_choice){.way = strcmp(argv[5], "direct") == 0 ? HY_DIRECT : HY_SLICES,
                                .segment = strtoull(argv[6], NULL, 10), .ahead = (unsigned)atoi(argv[7]),
                                .stream_out = atoi(argv[8])};
    return run_ranks((unsigned)ranks, atoi(argv[3]), argv[4], &choice);
}

/* ---- memcpy ------------------------------------------------------------------------- */

static void copy(void *arg, const float *in, float *out, size_t count)
{
    (void)arg;
    memcpy(out, in, count * sizeof *in);
    __asm__ volatile("" : : "r"(out) : "memory"); /* it is to be done, not to be seen through */
}

static void no_barrier(void *arg)
{
    (void)arg;
}

static int time_memcpy(char **argv)
{
    struct side s = {.ranks = 1, .batches = atoi(argv[2]), .allreduce = copy, .barrier = no_barrier};

    time_sizes(&s, argv[3]);
    return 0;
}

int main(int argc, char **argv)
{
    if ((argc == 5 || argc == 9) && strcmp(argv[1], "allreduce") == 0)
        return time_allreduce(argc, argv);
    if (argc == 4 && strcmp(argv[1], "memcpy") == 0)
        return time_memcpy(argv);
    fprintf(stderr, "usage: bench_collective allreduce RANKS BATCHES SIZES [WAY SEGMENT AHEAD OUT]\n"
                    "       bench_collective memcpy BATCHES SIZES\n");
    return 2;
}
