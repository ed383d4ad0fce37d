/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over TCP, on loopback. What needs a network of its own is in e2e/test_mesh_namespaces.py. */
#include "support.h"

#include "base/text.h"
#include "mesh_calls.h"
#include "mesh_handshake.h"
#include "mesh_trouble.h"
#include "mesh_processes.h"

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
        cmocka_unit_test(test_another_key_is_told_to_who_dials),
        cmocka_unit_test(test_strangers_at_the_door_do_no_harm),
        cmocka_unit_test(test_a_turn_accepts_a_bounded_number_of_connections),
        cmocka_unit_test(test_ranks_work_while_strangers_connect_in_a_loop),
        cmocka_unit_test(test_without_descriptors_a_rank_accepts_later),
        cmocka_unit_test(test_ranks_meet_over_ipv6),
        cmocka_unit_test(test_the_address_that_answers_is_taken),
        cmocka_unit_test(test_a_silent_listener_at_one_address_is_passed_by),
        cmocka_unit_test(test_only_the_named_interfaces_are_told),
        cmocka_unit_test(test_impossible_ranks_are_refused),
        cmocka_unit_test(test_a_rank_that_leaves_is_named),
        cmocka_unit_test(test_the_drivers_word_counts_more_than_a_closed_connection),
        cmocka_unit_test(test_after_an_error_every_call_says_the_same),
        cmocka_unit_test(test_a_rank_that_has_done_its_part_may_go),
        cmocka_unit_test(test_a_rank_that_cannot_be_reached_is_named),
        cmocka_unit_test(test_an_exchange_that_cannot_be_is_refused),
        cmocka_unit_test(test_every_fault_is_survived_or_told),
        cmocka_unit_test(test_a_killed_rank_is_named_by_all_others),
        cmocka_unit_test(test_a_killed_rank_is_named_without_a_driver_too),
        cmocka_unit_test(test_work_goes_on_after_a_rank_was_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
