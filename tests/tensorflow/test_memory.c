/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of tensors: used again, bounded, and from any thread. */
#include "support.h"

#include <pthread.h>

#include "base/mem.h"
#include "tensorflow/memory.h"

#define MANY 100
#define THREADS 4

static void *use(void *arg)
{
    const size_t n = *(const size_t *)arg;

    for (int i = 0; i < 2000; i++) {
        uint8_t *first = hy_memory_take(n), *second = hy_memory_take(n / 2);

        assert_true(first && second && first != second);
        first[0] = second[0] = 1;
        first[n - 1] = second[n / 2 - 1] = 2; /* ASan tells when it is too small */
        hy_memory_drop(first);
        hy_memory_drop(second);
    }
    return NULL;
}

static void test_what_was_dropped_is_used_again(void **state)
{
    void *before, *after;

    (void)state;
    before = hy_memory_take(1 << 20);
    assert_non_null(before);
    assert_int_equal((uintptr_t)before % 64, 0);
    hy_memory_drop(before);
    after = hy_memory_take((1 << 20) - 1000);
    assert_ptr_equal(after, before);
    hy_memory_drop(after);
    after = hy_memory_take(100 << 10); /* much less: it is kept for others */
    assert_ptr_not_equal(after, before);
    hy_memory_drop(after);
    hy_memory_drop(NULL);
}

/* Whatever was used: a leak check at the end finds what is neither kept nor given back. */
static void test_little_is_kept(void **state)
{
    static const size_t sizes[] = {1, 1000, 100 << 10, 3 << 20, 8 << 20, 9 << 20};
    static void *all[MANY];

    (void)state;
    for (size_t k = 0; k < HY_COUNT(sizes); k++) {
        for (int i = 0; i < MANY; i++) {
            all[i] = hy_memory_take(sizes[k]);
            assert_non_null(all[i]);
        }
        for (int i = 0; i < MANY; i++)
            hy_memory_drop(hy_take(all[i]));
    }
    assert_null(hy_memory_take(SIZE_MAX - 10));
}

static void test_threads_do_not_get_the_same(void **state)
{
    static const size_t sizes[THREADS] = {200 << 10, 200 << 10, 300 << 10, 1 << 20};
    pthread_t threads[THREADS];

    (void)state;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, (void *)(uintptr_t)&sizes[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_dropped_is_used_again),
        cmocka_unit_test(test_little_is_kept),
        cmocka_unit_test(test_threads_do_not_get_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
