/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A negotiator with arbitrary messages of ranks. The input is a list of messages: one byte for the rank, two for the
 * length, then a FromRank; rank 255 advances the time. No rank may receive an answer to the same request twice.
 */
#include <stdlib.h>
#include <string.h>

#include "collective/group/negotiate.h"
#include "faults.h"

#define RANKS 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void on_send(void *arg, const unsigned *ranks, unsigned count, const Hy__ToRank *message)
{
    size_t *sent = arg;

    for (unsigned i = 0; i < count; i++)
        if (ranks[i] >= RANKS)
            abort();
    if (message->body_case == HY__TO_RANK__BODY_RUN)
        *sent += count;
}

static void on_warn(void *arg, const char *text)
{
    (void)arg;
    if (strlen(text) == 0)
        abort();
}

static void run(const uint8_t *data, size_t size)
{
    static const struct hy_negotiator_events events = {on_send, on_warn, on_warn};
    size_t sent = 0;
    struct hy_negotiator *negotiator = hy_negotiator_new(RANKS, &events, &sent);
    struct hy_err err = {0};
    int64_t now = 0;
    int rc = 0;

    while (negotiator && rc == 0 && size >= 3) {
        unsigned rank = data[0];
        size_t n = data[1] | (size_t)data[2] << 8;
        Hy__FromRank *message;

        data += 3;
        size -= 3;
        if (rank == 255) {
            now += (int64_t)n;
            hy_negotiator_tick(negotiator, now);
            continue;
        }
        if (n > size)
            n = size;
        message = hy__from_rank__unpack(NULL, n, data);
        data += n;
        size -= n;
        if (!message)
            continue;
        rc = hy_negotiator_receive(negotiator, rank, message, now, &err);
        hy__from_rank__free_unpacked(message, NULL);
    }
    hy_negotiator_free(negotiator);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
