/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For targets that are pure functions of their input: runs it, and then once more with one failing allocation. A hash
 * of the input selects which one, so that a replay is deterministic, and a fuzzer finds the others.
 */
#ifndef HY_FUZZ_FAULTS_H
#define HY_FUZZ_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/fault.h"

/* True in the second run: checks that do not hold without memory are skipped. */
static bool hy_is_short_of_memory;

static inline void hy_run_with_faults(const uint8_t *data, size_t size, void (*run)(const uint8_t *data, size_t size))
{
    uint64_t hash = 0xcbf29ce484222325u;
    long passed;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    hy_is_short_of_memory = false;
    hy_fault_arm(HY_SEAM_ALLOC, 0);
    run(data, size);
    passed = hy_fault_passed(HY_SEAM_ALLOC);
    if (passed == 0)
        return;
    hy_is_short_of_memory = true;
    hy_fault_arm(HY_SEAM_ALLOC, 1 + (long)((hash >> 32) % (uint64_t)passed));
    run(data, size);
    hy_fault_arm(HY_SEAM_ALLOC, 0);
}

#endif
