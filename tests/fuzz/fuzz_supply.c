/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between a driver and a program that starts agents: an accepted line of the program can be forwarded to the
 * driver unchanged, and an order of the driver becomes one line of equivalent JSON.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/supply_lines.h"
#include "faults.h"

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

static void check_line(const uint8_t *data, size_t size)
{
    struct hy_supply_line word;

    if (hy_supply_parse((const char *)data, size, &word) < 0) {
        check(!word.line);
        return;
    }
    if (word.is_offer)
        check_offer(&word.offer);
    else
        check(word.why && strlen(word.why) <= size && word.over <= INT64_MAX);
    hy_supply_line_done(&word);
    check(!word.line);
}

static void check_order(const Hy__ClientAnswer *answer)
{
    json_t *line = hy_supply_order_line(answer), *again = NULL;
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;

    check(hy_is_short_of_memory || (text && !strchr(text, '\n')));
    if (text && answer->body_case == HY__CLIENT_ANSWER__BODY_START) {
        again = hy_json_parse(text, 0);
        check(again || hy_is_short_of_memory);
    }
    if (again) {
        check(strlen(json_string_value(json_object_get(again, "key"))) <= 64 &&
              *json_string_value(json_object_get(again, "join")));
        check(json_integer_value(json_object_get(again, "start")) == (json_int_t)answer->start->id);
        json_decref(again);
    }
    free(text);
    json_decref(line);
}

static void run(const uint8_t *data, size_t size)
{
    Hy__ClientAnswer *answer = hy__client_answer__unpack(NULL, size, data);

    check_line(data, size);
    if (answer &&
        (answer->body_case == HY__CLIENT_ANSWER__BODY_START || answer->body_case == HY__CLIENT_ANSWER__BODY_STOP))
        check_order(answer);
    if (answer)
        hy__client_answer__free_unpacked(answer, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    hy_run_with_faults(data, size, run);
    return 0;
}
