/* SPDX-License-Identifier: Apache-2.0 */
/* wire: frames, streams, authentication, links, local sockets, and floods of connections. */
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
        T(test_a_frame_round_trips_and_a_partial_frame_needs_more),
        T(test_invalid_frames_are_refused),
        T(test_everything_arrives_once_and_in_order_over_broken_connections),
        T(test_a_late_hello_of_an_older_connection_is_harmless),
        T(test_a_sender_stops_at_its_credit_and_continues_with_more),
        T(test_control_messages_overtake_queued_data),
        T(test_data_streams_are_served_round_robin),
        T(test_nothing_is_sent_before_its_release),
        T(test_a_release_stops_at_the_seal),
        T(test_discarded_data_is_never_sent),
        T(test_acknowledgements_are_delayed),
        T(test_64_mib_are_sent_with_one_window_of_memory),
        T(test_unacknowledged_control_messages_are_bounded),
        T(test_a_forgotten_stream_is_freed_at_its_sender_and_never_reopened),
        T(test_finished_streams_use_no_memory),
        T(test_a_stream_forgotten_on_a_broken_connection_is_freed_at_its_sender),
        T(test_stream_numbers_are_used_once_in_any_order),
        T(test_gaps_between_stream_numbers_are_bounded),
        T(test_offsets_and_sizes_of_files_are_bounded),
        T(test_paths_of_files_are_bounded),
        T(test_names_and_counts_of_values_are_bounded),
        T(test_a_hostile_peer_is_refused),
        T(test_the_number_of_open_streams_is_bounded),
        T(test_streams_survive_failed_allocations),
        T(test_streams_survive_a_lost_frame),
        T(test_a_refused_message_is_delivered_again),

        T(test_each_agent_has_a_different_key),
        T(test_a_key_file_is_private_and_round_trips),
        T(test_the_memory_of_a_message_is_bounded_by_its_length),
        T(test_a_message_with_many_short_strings_is_parsed),
        T(test_an_invalid_hello_is_refused),
        T(test_unauthorized_and_invalid_clients_are_dropped_with_one_log_line),
        T(test_an_agent_sends_nothing_to_a_server_without_the_key),
        T(test_an_agent_with_a_wrong_key_is_refused),
        T(test_an_idle_connection_is_dropped),
        T(test_half_open_connections_are_bounded),

        T(test_a_session_carries_messages_and_data_both_ways),
        T(test_a_message_waits_for_the_flush),
        T(test_a_lost_frame_loses_and_repeats_nothing),
        T(test_links_survive_failed_allocations),
        T(test_links_survive_failed_system_calls),
        T(test_a_silent_agent_is_given_up),
        T(test_pings_keep_a_quiet_session_alive),
        T(test_a_stalled_loop_does_not_give_up_its_peers),
        T(test_a_paused_net_reads_nothing_and_gives_up_no_peer),
        T(test_a_dialer_gives_up_without_an_answer),
        T(test_an_agent_whose_session_was_closed_is_notified),
        T(test_a_second_agent_with_the_same_name_waits_until_the_first_is_given_up),
        T(test_closing_sends_queued_data),
        T(test_both_ends_may_close_at_once),
        T(test_a_peer_does_not_linger_if_the_other_end_has_closed),
        T(test_a_peer_may_be_closed_in_its_message_callback),
        T(test_many_agents_connect_at_once),
        T(test_listening_and_dialing_refuse_invalid_arguments),
        T(test_a_host_is_dialed_by_name),

        T(test_local_messages_of_every_size_are_echoed),
        T(test_local_end_sends_the_queue_before_it_closes),
        T(test_local_garbage_is_dropped_with_one_log_line),
        T(test_a_local_client_detects_an_incomplete_message),
        T(test_a_stale_socket_is_replaced_and_a_live_one_is_not),
        T(test_nothing_is_sent_to_another_users_socket),
        T(test_closing_does_not_remove_another_process_socket),
        T(test_local_sockets_fail_cleanly),

        T(test_a_turn_accepts_a_bounded_number_of_connections),
        T(test_refused_connections_do_not_fill_the_log_or_the_memory),
        T(test_idle_connections_do_not_evict_a_client_with_the_key),
        T(test_a_listener_without_descriptors_pauses_and_resumes),
        T(test_a_turn_accepts_a_bounded_number_of_local_connections),
        T(test_local_clients_of_other_users_do_not_fill_the_log_or_the_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
