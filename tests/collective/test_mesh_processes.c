/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks as processes, which are killed and stopped. */
#include "base/rng.h"
#include "fds.h"
#include "mesh_checks.h"

#define KILLS 20

/* The final report of a rank's process. */
struct final_report {
    int rc, fds_left;
    char text[160];
};

struct processes {
    struct world world;
    int words[2];                  /* pipe: final reports of all ranks */
    int driver[WORLD_MAX][2];      /* pipes: to each rank, the number of a rank that has ended */
    int turns[2];                  /* pipe: a byte for every iteration of rank 0 */
};

static int check_driver(void *arg, struct hy_err *err)
{
    uint8_t lost;
    ssize_t n = read(*(int *)arg, &lost, 1);

    return n == 1 ? hy_err_set(err, -EOWNERDEAD, "the driver says that rank %u has ended", lost) : 0;
}

static void child(struct processes *p, unsigned rank, bool driven)
{
    struct rank *r = &p->world.ranks[rank];
    struct final_report word = {0};
    int before;

    alarm(120);
    for (unsigned i = 0; i < p->world.size; i++)
        if (i != rank)
            close(p->world.listeners[i]);
    before = count_fds();
    r->world = &p->world;
    r->rank = rank;
    if (driven)
        r->waiter = (struct hy_waiter){
            .bell = -1, .watch_fd = p->driver[rank][0], .check = check_driver, .arg = &p->driver[rank][0]};
    word.rc = rank_run(r);
    word.fds_left = count_fds() - (before - 1); /* its listener was closed with the mesh */
    snprintf(word.text, sizeof word.text, "%s", r->waiter.failed.text);
    _exit(write(p->words[1], &word, sizeof word) == sizeof word ? 0 : 1);
}

static void start_processes(struct processes *p, unsigned size, int (*body)(struct rank *r), bool driven)
{
    world_init(&p->world, size, body, p);
    assert_int_equal(pipe2(p->words, O_CLOEXEC), 0);
    assert_int_equal(pipe2(p->turns, O_CLOEXEC), 0);
    for (unsigned i = 0; i < size; i++)
        assert_int_equal(pipe2(p->driver[i], O_CLOEXEC | O_NONBLOCK), 0);
    for (unsigned i = 0; i < size; i++) {
        p->world.ranks[i].pid = fork();
        assert_true(p->world.ranks[i].pid >= 0);
        if (p->world.ranks[i].pid == 0)
            child(p, i, driven);
    }
    for (unsigned i = 0; i < size; i++)
        close(p->world.listeners[i]);
}

static void end_processes(struct processes *p)
{
    for (unsigned i = 0; i < p->world.size; i++) {
        waitpid(p->world.ranks[i].pid, NULL, 0);
        close(p->driver[i][0]);
        close(p->driver[i][1]);
    }
    for (int i = 0; i < 2; i++) {
        close(p->words[i]);
        close(p->turns[i]);
    }
}

static void tell_all(struct processes *p, uint8_t lost)
{
    for (unsigned i = 0; i < p->world.size; i++)
        assert_int_equal(write(p->driver[i][1], &lost, 1), 1);
}

static void expect_final_report(struct processes *p, int rc, const char *text)
{
    struct final_report word;

    assert_int_equal(read(p->words[0], &word, sizeof word), sizeof word);
    if (word.rc != rc || !strstr(word.text, text))
        fail_msg("%d: %s, where %d: %s should be", word.rc, word.text, rc, text);
    assert_int_equal(word.fds_left, 0);
}

/* Small and large allreduces alternate forever; rank 0 reports the first one. */
static int body_forever(struct rank *r)
{
    struct processes *p = r->world->arg;
    hy_cleanup_free float *numbers = calloc(1, 4 << 20);
    int rc = 0;

    for (unsigned turn = 0; rc == 0; turn++) {
        if (r->rank == 0 && turn < 3000 && write(p->turns[1], "", 1) != 1)
            return -EIO;
        rc = hy_mesh_allreduce(r->mesh, r->world->peers, r->world->size, numbers, turn % 4 ? 1000 : 1 << 20, HY_F32,
                               HY_SUM);
    }
    return rc;
}

HY_TEST(test_a_killed_rank_is_named_by_all_others)
{
    int before = count_fds();
    struct hy_rng rng;

    hy_rng_seed(&rng, 5, 0);
    for (int turn = 0; turn < KILLS; turn++) {
        uint8_t victim = (uint8_t)hy_rng_below(&rng, 4);
        struct processes p;
        char byte, expected[40];

        start_processes(&p, 4, body_forever, true);
        assert_int_equal(read(p.turns[0], &byte, 1), 1);
        usleep((useconds_t)hy_rng_below(&rng, 30000)); /* at a random moment */
        kill(p.world.ranks[victim].pid, SIGKILL);
        assert_int_equal(waitpid(p.world.ranks[victim].pid, NULL, 0), p.world.ranks[victim].pid);
        tell_all(&p, victim);
        snprintf(expected, sizeof expected, "rank %u has ended", victim);
        for (int i = 0; i < 3; i++)
            expect_final_report(&p, -EOWNERDEAD, expected);
        end_processes(&p);
    }
    assert_int_equal(count_fds(), before);
}

HY_TEST(test_a_killed_rank_is_named_without_a_driver_too)
{
    for (uint8_t victim = 0; victim < 2; victim++) {
        struct processes p;
        char byte, expected[60];

        start_processes(&p, 2, body_forever, false);
        for (int i = 0; i < 10; i++) /* by then all links are connected */
            assert_int_equal(read(p.turns[0], &byte, 1), 1);
        kill(p.world.ranks[victim].pid, SIGKILL);
        snprintf(expected, sizeof expected, "rank %u at 127.0.0.1:%u has closed", victim, p.world.ports[victim]);
        expect_final_report(&p, -ECONNRESET, expected);
        end_processes(&p);
    }
}

static int body_some_large(struct rank *r)
{
    struct processes *p = r->world->arg;
    int rc = 0;

    for (int turn = 0; turn < 6 && rc == 0; turn++) {
        if (r->rank == 0 && write(p->turns[1], "", 1) != 1)
            return -EIO;
        rc = check_allreduce(r, r->world->peers, r->world->size, 1 << 20, HY_F32, HY_SUM);
    }
    return rc;
}

HY_TEST(test_collectives_continue_after_a_rank_was_stopped)
{
    struct processes p;
    char byte;

    start_processes(&p, 3, body_some_large, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(read(p.turns[0], &byte, 1), 1);
    kill(p.world.ranks[1].pid, SIGSTOP);
    usleep(1500000);
    kill(p.world.ranks[1].pid, SIGCONT);
    for (int i = 0; i < 3; i++)
        expect_final_report(&p, 0, "");
    end_processes(&p);
}
