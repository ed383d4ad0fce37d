/* SPDX-License-Identifier: Apache-2.0 */
/* The wire: frames, streams that survive, keys that are proven, links, local sockets. */
#include "wire_limits.h"
#include "wire_streams.h"
#include "wire_links.h"
#include "wire_auth.h"
#include "wire_local.h"
#include "wire_floods.h"

#define T(name) cmocka_unit_test_teardown(name, log_restore)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_frame_reads_back_as_it_was_and_half_of_it_waits),
        T(test_what_is_no_frame_is_refused),
        T(test_all_arrives_once_and_in_order_however_often_the_connection_breaks),
        T(test_a_late_hello_of_an_older_connection_does_no_harm),
        T(test_a_sender_stops_at_its_credit_and_goes_on_with_more),
        T(test_control_goes_before_a_backlog_of_data),
        T(test_data_streams_take_turns),
        T(test_nothing_is_sent_before_its_release),
        T(test_a_release_stops_at_the_seal),
        T(test_what_is_discarded_is_never_sent),
        T(test_acknowledgements_wait_for_company),
        T(test_64_mib_go_through_in_a_window_of_memory),
        T(test_control_that_nobody_takes_is_bounded),
        T(test_a_forgotten_stream_frees_its_sender_and_never_comes_back),
        T(test_streams_that_are_over_leave_nothing_behind),
        T(test_a_stream_forgotten_on_a_broken_connection_frees_its_sender_too),
        T(test_stream_numbers_are_used_once_in_whatever_order),
        T(test_holes_between_stream_numbers_are_bounded),
        T(test_offsets_and_sizes_of_files_are_bounded),
        T(test_paths_of_files_are_bounded),
        T(test_names_and_counts_of_values_are_bounded),
        T(test_a_hostile_peer_is_refused),
        T(test_streams_open_at_a_time_are_bounded),
        T(test_streams_come_through_without_memory_for_a_moment),
        T(test_streams_come_through_any_lost_frame),
        T(test_a_message_that_was_not_taken_is_given_again),

        T(test_each_agent_has_a_key_of_its_own),
        T(test_a_key_file_is_private_and_reads_back),
        T(test_a_message_costs_no_more_than_its_length_allows),
        T(test_a_message_of_many_short_strings_is_read),
        T(test_a_hello_that_makes_no_sense_is_refused),
        T(test_whoever_should_not_be_there_is_dropped_with_one_line),
        T(test_an_agent_tells_nothing_to_a_server_without_the_key),
        T(test_an_agent_with_a_wrong_key_does_not_get_up),
        T(test_who_connects_and_says_nothing_is_dropped),
        T(test_half_open_connections_are_bounded),

        T(test_a_session_carries_messages_and_data_both_ways),
        T(test_a_message_waits_for_the_flush),
        T(test_a_lost_frame_loses_and_repeats_nothing),
        T(test_links_come_through_without_memory_for_a_moment),
        T(test_links_come_through_calls_that_fail),
        T(test_a_silent_agent_is_given_up),
        T(test_pings_keep_a_quiet_session_alive),
        T(test_a_stall_of_ones_own_is_not_taken_for_silence),
        T(test_a_paused_net_reads_nothing_and_gives_nobody_up),
        T(test_a_dialer_gives_up_when_nobody_answers),
        T(test_an_agent_whose_session_is_not_known_any_more_is_told_so),
        T(test_a_second_agent_of_a_name_waits_until_the_first_is_given_up),
        T(test_closing_still_sends_what_is_queued),
        T(test_both_ends_may_close_at_once),
        T(test_nobody_lingers_for_an_end_that_has_closed),
        T(test_a_peer_may_be_closed_within_its_own_message),
        T(test_many_agents_at_once),
        T(test_listening_and_dialing_refuse_what_makes_no_sense),
        T(test_a_host_is_dialed_by_its_name),

        T(test_local_messages_of_every_size_come_and_go),
        T(test_local_end_waits_until_all_is_written),
        T(test_local_garbage_is_dropped_with_one_line),
        T(test_a_local_client_knows_half_a_message),
        T(test_a_stale_socket_is_replaced_and_a_live_one_is_not),
        T(test_nothing_is_said_to_another_users_socket),
        T(test_closing_leaves_another_ones_socket_alone),
        T(test_local_sockets_fail_cleanly),

        T(test_a_turn_accepts_a_bounded_number_of_connections),
        T(test_refused_connections_fill_neither_the_log_nor_the_memory),
        T(test_a_flood_of_idle_connections_does_not_evict_who_has_the_key),
        T(test_without_descriptors_a_listener_pauses_and_goes_on_later),
        T(test_a_turn_accepts_a_bounded_number_of_local_connections),
        T(test_local_strangers_cost_neither_memory_nor_log),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
