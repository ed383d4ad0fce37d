/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks over TCP, on loopback. Tests with network namespaces are in e2e/test_mesh_namespaces.py. */
#include "support.h"

#include "base/text.h"
#include "mesh_calls.h"
#include "mesh_handshake.h"
#include "mesh_trouble.h"
#include "mesh_processes.h"

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256_matches_the_test_vectors),
        cmocka_unit_test(test_hmac_matches_the_test_vectors),
        cmocka_unit_test(test_two_ends_with_the_same_key_authenticate),
        cmocka_unit_test(test_a_different_key_is_detected_by_both_ends),
        cmocka_unit_test(test_any_changed_byte_of_a_handshake_is_detected),
        cmocka_unit_test(test_a_hello_for_another_rank_is_refused),
        cmocka_unit_test(test_garbage_is_rejected_by_its_first_byte),
        cmocka_unit_test(test_a_handshake_cannot_be_replayed),
        cmocka_unit_test(test_allreduce_of_every_type_and_operation),
        cmocka_unit_test(test_results_are_the_same_bits_on_every_rank_and_in_every_run),
        cmocka_unit_test(test_reducescatter_of_unequal_shares),
        cmocka_unit_test(test_broadcast_from_every_root),
        cmocka_unit_test(test_allgather_of_unequal_parts),
        cmocka_unit_test(test_exchange_keeps_the_order_of_each_pair),
        cmocka_unit_test(test_no_rank_leaves_a_barrier_before_all_reach_it),
        cmocka_unit_test(test_sets_of_ranks_may_overlap),
        cmocka_unit_test(test_pipes_carry_bytes_between_rank_0_and_the_others),
        cmocka_unit_test(test_a_different_key_is_reported_to_the_dialer),
        cmocka_unit_test(test_unauthenticated_connections_do_no_harm),
        cmocka_unit_test(test_an_iteration_accepts_a_bounded_number_of_connections),
        cmocka_unit_test(test_ranks_work_while_others_connect_in_a_loop),
        cmocka_unit_test(test_without_descriptors_a_rank_accepts_later),
        cmocka_unit_test(test_ranks_connect_over_ipv6),
        cmocka_unit_test(test_the_address_that_answers_is_used),
        cmocka_unit_test(test_a_silent_listener_at_one_address_is_skipped),
        cmocka_unit_test(test_only_the_named_interfaces_are_used),
        cmocka_unit_test(test_invalid_ranks_are_refused),
        cmocka_unit_test(test_a_rank_that_leaves_is_named),
        cmocka_unit_test(test_the_drivers_report_takes_precedence_over_a_closed_connection),
        cmocka_unit_test(test_after_an_error_every_call_returns_it),
        cmocka_unit_test(test_a_rank_may_close_when_its_part_is_done),
        cmocka_unit_test(test_a_rank_that_cannot_be_reached_is_named),
        cmocka_unit_test(test_an_invalid_exchange_is_refused),
        cmocka_unit_test(test_every_fault_is_survived_or_reported),
        cmocka_unit_test(test_a_killed_rank_is_named_by_all_others),
        cmocka_unit_test(test_a_killed_rank_is_named_without_a_driver_too),
        cmocka_unit_test(test_collectives_continue_after_a_rank_was_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
