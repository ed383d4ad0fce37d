/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of tensors: reused, bounded, and thread-safe. */
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
        uint8_t *first = hy_memory_alloc(n), *second = hy_memory_alloc(n / 2);

        assert_true(first && second && first != second);
        first[0] = second[0] = 1;
        first[n - 1] = second[n / 2 - 1] = 2; /* ASan detects a block that is too small */
        hy_memory_free(first);
        hy_memory_free(second);
    }
    return NULL;
}

HY_TEST(test_freed_memory_is_reused)
{
    void *before, *after;

    before = hy_memory_alloc(1 << 20);
    assert_non_null(before);
    assert_int_equal((uintptr_t)before % 64, 0);
    hy_memory_free(before);
    after = hy_memory_alloc((1 << 20) - 1000);
    assert_ptr_equal(after, before);
    hy_memory_free(after);
    after = hy_memory_alloc(100 << 10); /* less than half of it: not reused */
    assert_ptr_not_equal(after, before);
    hy_memory_free(after);
    hy_memory_free(NULL);
}

/* The leak check at exit finds blocks that are neither cached nor freed. */
HY_TEST(test_the_cache_is_bounded)
{
    static const size_t sizes[] = {1, 1000, 100 << 10, 3 << 20, 8 << 20, 9 << 20};
    static void *all[MANY];

    for (size_t k = 0; k < HY_COUNT(sizes); k++) {
        for (int i = 0; i < MANY; i++) {
            all[i] = hy_memory_alloc(sizes[k]);
            assert_non_null(all[i]);
        }
        for (int i = 0; i < MANY; i++)
            hy_memory_free(hy_take(all[i]));
    }
    assert_null(hy_memory_alloc(SIZE_MAX - 10));
}

HY_TEST(test_threads_get_different_memory)
{
    static const size_t sizes[THREADS] = {200 << 10, 200 << 10, 300 << 10, 1 << 20};
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, (void *)(uintptr_t)&sizes[i]), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}
