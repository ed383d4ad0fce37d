/* SPDX-License-Identifier: Apache-2.0 */
#include "support.h"

#include <stdint.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/internal.h"
#include "base/fault.h"
#include "base/mem.h"
#include "base/rng.h"
#include "fds.h"

HY_TEST(test_share_is_in_hundredths_rounded_up)
{
    assert_int_equal(hy_gpu_quanta(1), 1);
    assert_int_equal(hy_gpu_quanta(10), 1);
    assert_int_equal(hy_gpu_quanta(11), 2);
    assert_int_equal(hy_gpu_quanta(200), 20);
    assert_int_equal(hy_gpu_quanta(333), 34);
    assert_int_equal(hy_gpu_quanta(990), 99);
    assert_int_equal(hy_gpu_quanta(999), 100);
    assert_int_equal(hy_gpu_quanta(1000), 0);
    assert_int_equal(hy_gpu_quanta(4000), 0);
}

/* A device that no other process uses. */
static const char *uuid(void)
{
    static char text[64];

    if (!*text)
        snprintf(text, sizeof text, "GPU-test-%d", (int)getpid());
    return text;
}

HY_TEST(test_whole_device_and_share_exclude_each_other)
{
    struct hy_gpu_lock whole = {0}, share = {0};
    int before = count_fds();

    assert_int_equal(hy_gpu_lock_add(&whole, uuid(), 1000), 0);
    assert_int_equal(whole.count, 1);
    assert_int_equal(hy_gpu_lock_add(&share, uuid(), 10), -EBUSY);
    assert_int_equal(hy_gpu_lock_add(&share, uuid(), 1000), -EBUSY);
    assert_int_equal(share.count, 0);
    assert_int_equal(count_fds(), before + 1);
    hy_gpu_lock_drop(&whole);
    assert_int_equal(hy_gpu_lock_add(&share, uuid(), 10), 0);
    assert_int_equal(hy_gpu_lock_add(&whole, uuid(), 1000), -EBUSY);
    hy_gpu_lock_drop(&share);
    assert_int_equal(hy_gpu_lock_add(&whole, uuid(), 1000), 0);
    hy_gpu_lock_drop(&whole);
    assert_int_equal(count_fds(), before);
}

HY_TEST(test_shares_add_up_to_one_and_no_more)
{
    struct hy_gpu_lock locks[6] = {0};

    for (int i = 0; i < 5; i++)
        assert_int_equal(hy_gpu_lock_add(&locks[i], uuid(), 200), 0);
    assert_int_equal(hy_gpu_lock_add(&locks[5], uuid(), 200), -EBUSY);
    assert_int_equal(hy_gpu_lock_add(&locks[5], uuid(), 1), -EBUSY);
    hy_gpu_lock_drop(&locks[2]);
    assert_int_equal(hy_gpu_lock_add(&locks[5], uuid(), 201), -EBUSY);
    assert_int_equal(hy_gpu_lock_add(&locks[5], uuid(), 200), 0);
    for (int i = 0; i < 6; i++)
        hy_gpu_lock_drop(&locks[i]);
}

HY_TEST(test_failed_lock_keeps_the_others)
{
    struct hy_gpu_lock lock = {0}, other = {0};
    char second[80];

    snprintf(second, sizeof second, "%s-b", uuid());
    assert_int_equal(hy_gpu_lock_add(&other, second, 1000), 0);
    assert_int_equal(hy_gpu_lock_add(&lock, uuid(), 1000), 0);
    assert_int_equal(hy_gpu_lock_add(&lock, second, 1000), -EBUSY);
    assert_int_equal(lock.count, 1);
    hy_gpu_lock_drop(&other);
    assert_int_equal(hy_gpu_lock_add(&lock, second, 1000), 0);
    assert_int_equal(lock.count, 2);
    hy_gpu_lock_drop(&lock);
}

HY_TEST(test_lock_lasts_until_its_last_process_has_exited)
{
    struct hy_gpu_lock lock = {0}, other = {0};
    int status;
    pid_t child;

    assert_int_equal(hy_gpu_lock_add(&lock, uuid(), 300), 0);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    hy_gpu_lock_drop(&lock);
    assert_int_equal(hy_gpu_lock_add(&other, uuid(), 1000), -EBUSY);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(hy_gpu_lock_add(&other, uuid(), 1000), 0);
    hy_gpu_lock_drop(&other);
}

/* Shared by all racing processes. */
struct tally {
    int now;   /* hundredths in use */
    int most;
    long shares, wholes, refused;
};

static void note_most(struct tally *t, int now)
{
    int most = __atomic_load_n(&t->most, __ATOMIC_SEQ_CST);

    while (now > most && !__atomic_compare_exchange_n(&t->most, &most, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        ;
}

static __attribute__((noreturn)) void race(struct tally *t, const char *device, uint64_t seed, int rounds)
{
    struct hy_rng rng;

    hy_rng_seed(&rng, seed, 0);
    for (int i = 0; i < rounds; i++) {
        uint32_t share = hy_rng_below(&rng, 4) == 0 ? 1000 : 10 + 10 * (uint32_t)hy_rng_below(&rng, 50);
        int hundredths = share == 1000 ? 100 : (int)hy_gpu_quanta(share);
        struct hy_gpu_lock lock = {0};
        int rc = hy_gpu_lock_add(&lock, device, share);

        if (rc != 0 && rc != -EBUSY)
            _exit(1);
        __atomic_add_fetch(rc ? &t->refused : share == 1000 ? &t->wholes : &t->shares, 1, __ATOMIC_SEQ_CST);
        if (rc) {
            sched_yield(); /* to whoever holds it: otherwise all rounds may pass within one pause of a process */
            continue;
        }
        note_most(t, __atomic_add_fetch(&t->now, hundredths, __ATOMIC_SEQ_CST));
        if (hy_rng_below(&rng, 4) == 0)
            usleep((unsigned)hy_rng_below(&rng, 50)); /* so that others contend for it */
        __atomic_sub_fetch(&t->now, hundredths, __ATOMIC_SEQ_CST);
        hy_gpu_lock_drop(&lock);
    }
    _exit(0);
}

HY_TEST(test_20_racing_processes_never_hold_more_than_one_device)
{
    enum { RACERS = 20, ROUNDS = 2000 };
    struct tally *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char device[64];
    int status;

    assert_true(t != MAP_FAILED);
    snprintf(device, sizeof device, "%s", uuid());
    for (int i = 0; i < RACERS; i++) {
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
            race(t, device, (uint64_t)i, ROUNDS);
    }
    for (int i = 0; i < RACERS; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(t->now, 0);
    assert_true(t->most > 50); /* they did contend ... */
    assert_true(t->most <= 100);
    assert_true(t->shares > RACERS && t->wholes > 0 && t->refused > 0);
    assert_int_equal(t->shares + t->wholes + t->refused, RACERS * ROUNDS);
    munmap(t, sizeof *t);
}

HY_TEST(test_lock_survives_every_failing_call)
{
    static const uint32_t shares[] = {40, 1000};
    int before = count_fds();

    for (size_t i = 0; i < HY_COUNT(shares); i++) {
        long n = 0, passed;

        do {
            struct hy_gpu_lock lock = {0};
            int rc;

            hy_fault_arm(HY_SEAM_SYS, ++n);
            rc = hy_gpu_lock_add(&lock, uuid(), shares[i]);
            passed = hy_fault_passed(HY_SEAM_SYS);
            hy_fault_arm(HY_SEAM_SYS, 0);
            assert_int_equal(rc, passed >= n ? -EIO : 0);
            assert_int_equal(rc == 0, lock.count > 0);
            hy_gpu_lock_drop(&lock);
            assert_int_equal(count_fds(), before);
        } while (passed >= n);
        assert_int_equal(n - 1, shares[i] == 1000 ? 2 + 1 + 100 : 4 * 2 + 1 + 1);
    }
}
