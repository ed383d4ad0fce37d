/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a program that starts agents: what is taken for one can be sent on to the driver as it is. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/supplyword.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int holds)
{
    if (!holds)
        abort();
}

static void check_offer(const Hy__Supply *offer)
{
    size_t n = hy__supply__get_packed_size(offer);
    uint8_t *packed = malloc(n + 1);
    Hy__Supply *again;

    check(packed && hy__supply__pack(offer, packed) == n);
    again = hy__supply__unpack(NULL, n, packed);
    check(again && strcmp(again->what, offer->what) == 0 && strcmp(again->note, offer->note) == 0);
    check(again->agents == offer->agents && again->parallel == offer->parallel && again->more == offer->more);
    hy__supply__free_unpacked(again, NULL);
    free(packed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hy_supply_word word;

    if (hy_supply_parse((const char *)data, size, &word) < 0) {
        check(!word.line);
        return 0;
    }
    if (word.is_offer)
        check_offer(&word.offer);
    else
        check(word.why && strlen(word.why) <= size && word.over <= INT64_MAX);
    hy_supply_word_done(&word);
    check(!word.line);
    return 0;
}
