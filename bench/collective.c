/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What src/collective does on one host, and what one core can copy.
 *
 *   bench_collective allreduce RANKS BATCHES SIZES                      as the table chooses
 *   bench_collective allreduce RANKS BATCHES SIZES WAY SEGMENT AHEAD OUT
 *                                         so (WAY: direct, slices; OUT: 1 for results past the caches)
 *   bench_collective grouped RANKS BATCHES TENSORS SIZE spans|staged    so many tensors of that size at once: from and
 *                                         to the tensors, or by way of one buffer, as between hosts
 *   bench_collective memcpy BATCHES SIZES                               "BYTES SECONDS", as all do
 */
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "allreduce_loop.h"
#include "collective/shm/shm_set.h"

/* What a rank does once its set is open. */
struct own_side {
    struct hy_shm_set *set;
    const struct hy_choice *choice; /* NULL: the table's */
    void (*run)(struct own_side *own, unsigned rank, unsigned ranks);
    int batches;
    const char *sizes;
    size_t tensors, tensor_bytes; /* grouped */
    bool staged;
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

static void time_own_sizes(struct own_side *own, unsigned rank, unsigned ranks)
{
    struct side s = {.rank = (int)rank,
                     .ranks = (int)ranks,
                     .batches = own->batches,
                     .allreduce = allreduce,
                     .barrier = barrier,
                     .arg = own};

    time_sizes(&s, own->sizes);
}

static void be_rank(const struct host *h, unsigned rank, struct own_side own)
{
    struct hy_waiter waiter = {.bell = h->bells[rank], .watch_fd = -1};
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
    own.run(&own, rank, h->ranks);
    hy_shm_set_close(own.set);
    hy_shm_close(shm);
}

static int run_ranks(unsigned ranks, const struct own_side *own)
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
            be_rank(&h, i, *own);
            exit(0);
        }
    }
    for (unsigned i = 0; i < ranks; i++) {
        int status = 1;

        failed |= wait(&status) < 0 || status != 0;
    }
    return failed;
}

static unsigned parse_ranks(const char *text)
{
    int ranks = atoi(text);

    if (ranks < 1 || ranks > (int)HY_LOCAL_MAX_RANKS)
        die("invalid number of ranks");
    return (unsigned)ranks;
}

static int time_allreduce(int argc, char **argv)
{
    struct hy_choice choice;
    struct own_side own = {.run = time_own_sizes, .batches = atoi(argv[3]), .sizes = argv[4]};

    if (argc == 5)
        return run_ranks(parse_ranks(argv[2]), &own);
    choice = (struct hy_choice){.way = strcmp(argv[5], "direct") == 0 ? HY_DIRECT : HY_SLICES,
                                .segment = strtoull(argv[6], NULL, 10),
                                .ahead = (unsigned)atoi(argv[7]),
                                .stream_out = atoi(argv[8])};
    own.choice = &choice;
    return run_ranks(parse_ranks(argv[2]), &own);
}

/* ---- grouped ------------------------------------------------------------------------ */

#define GROUPED_TURNS 4

static void reduce_staged(struct own_side *own, const struct hy_span *spans, float *stage)
{
    size_t count = own->tensor_bytes / sizeof *stage;

    for (size_t i = 0; i < own->tensors; i++)
        memcpy(stage + i * count, spans[i].in, own->tensor_bytes);
    allreduce(own, stage, stage, own->tensors * count);
    for (size_t i = 0; i < own->tensors; i++)
        memcpy(spans[i].out, stage + i * count, own->tensor_bytes);
}

static void reduce_group(struct own_side *own, const struct hy_span *spans, float *stage)
{
    if (own->staged)
        reduce_staged(own, spans, stage);
    else if (hy_shm_allreduce_spans(own->set, spans, own->tensors, HY_F32, HY_SUM, 1, 1) < 0)
        die("an allreduce failed");
}

static void check_group(const struct own_side *own, const struct hy_span *spans, unsigned ranks)
{
    for (size_t i = 0; i < own->tensors; i++)
        for (size_t k = 0; k < spans[i].count; k += 1009)
            if (((const float *)spans[i].out)[k] != (float)(ranks * (i + k % 7) + ranks * (ranks - 1) / 2))
                die("a result is wrong");
}

/* In huge pages, as the group's own is. */
static float *stage_buffer(size_t bytes)
{
    size_t page = 2u << 20;
    float *stage = aligned_alloc(page, (bytes + page - 1) & ~(page - 1));

    if (!stage)
        die("out of memory");
    (void)madvise(stage, bytes, MADV_HUGEPAGE);
    return stage;
}

static void time_group(struct own_side *own, unsigned rank, unsigned ranks)
{
    struct hy_span *spans = calloc(own->tensors, sizeof *spans);
    float *stage = stage_buffer(own->tensors * own->tensor_bytes);

    for (size_t i = 0; i < own->tensors; i++) {
        float *in = buffer(own->tensor_bytes);

        spans[i] = (struct hy_span){in, buffer(own->tensor_bytes), own->tensor_bytes / sizeof *in};
        for (size_t k = 0; k < spans[i].count; k++)
            in[k] = (float)(i + k % 7 + rank);
    }
    reduce_group(own, spans, stage);
    for (int batch = 0; batch < own->batches; batch++) {
        double begin;

        barrier(own);
        begin = seconds_now();
        for (int i = 0; i < GROUPED_TURNS; i++)
            reduce_group(own, spans, stage);
        barrier(own);
        if (rank == 0)
            printf("%zu %.9f\n", own->tensor_bytes, (seconds_now() - begin) / GROUPED_TURNS);
    }
    fflush(stdout);
    check_group(own, spans, ranks);
}

static int time_grouped(char **argv)
{
    struct own_side own = {.run = time_group,
                           .batches = atoi(argv[3]),
                           .tensors = strtoull(argv[4], NULL, 10),
                           .tensor_bytes = strtoull(argv[5], NULL, 10),
                           .staged = strcmp(argv[6], "staged") == 0};

    if (!own.tensors || own.tensor_bytes < sizeof(float))
        die("invalid number or size of tensors");
    return run_ranks(parse_ranks(argv[2]), &own);
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
    if (argc == 7 && strcmp(argv[1], "grouped") == 0)
        return time_grouped(argv);
    if (argc == 4 && strcmp(argv[1], "memcpy") == 0)
        return time_memcpy(argv);
    fprintf(stderr, "usage: bench_collective allreduce RANKS BATCHES SIZES [WAY SEGMENT AHEAD OUT]\n"
                    "       bench_collective grouped RANKS BATCHES TENSORS SIZE spans|staged\n"
                    "       bench_collective memcpy BATCHES SIZES\n");
    return 2;
}
