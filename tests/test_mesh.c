/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over TCP, on loopback. What needs a network of its own is in e2e/test_mesh_namespaces.py. */
#include "support.h"

#include "base/text.h"
#include "mesh_calls.h"
#include "mesh_shake.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_gives_the_standards_digests),
        cmocka_unit_test(test_hmac_gives_the_rfcs_codes),
        cmocka_unit_test(test_two_ends_with_one_key_come_to_trust_each_other),
        cmocka_unit_test(test_another_key_is_seen_by_both_ends),
        cmocka_unit_test(test_no_byte_of_a_handshake_can_be_changed),
        cmocka_unit_test(test_a_hello_for_somebody_else_is_refused),
        cmocka_unit_test(test_garbage_is_known_by_its_first_byte),
        cmocka_unit_test(test_a_handshake_cannot_be_played_again),
        cmocka_unit_test(test_allreduce_of_every_type_and_operation),
        cmocka_unit_test(test_results_are_the_same_bits_on_every_rank_and_in_every_run),
        cmocka_unit_test(test_reducescatter_gives_everyone_its_uneven_share),
        cmocka_unit_test(test_broadcast_from_every_root),
        cmocka_unit_test(test_allgather_of_unequal_parts),
        cmocka_unit_test(test_exchange_keeps_the_order_of_each_pair),
        cmocka_unit_test(test_nobody_leaves_a_barrier_before_all_are_there),
        cmocka_unit_test(test_sets_of_ranks_may_overlap),
        cmocka_unit_test(test_pipes_carry_bytes_between_rank_0_and_the_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
