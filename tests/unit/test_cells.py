"""Each line of docs/explanation/what-happens.md has a test."""

import re

import pytest

from tests.support.pages import DOCS, ROOT

PAGE = (DOCS / "explanation/what-happens.md").read_text("utf-8")

_WHAT = "contract/test_what_happens.py::"
_SAME = {
    "partitions": [f"{_WHAT}test_all_works_in_partitions"],
    "cluster": [f"{_WHAT}test_all_works_on_a_cluster"],
    "signing_keys": [f"{_WHAT}test_all_works_under_signing"],
    "unique=": [f"{_WHAT}test_unique_name_is_taken_until_it_has_ended"],
    "after=": [f"{_WHAT}test_job_after_it_runs_once_it_has_ended"],
    "paused": [f"{_WHAT}test_paused_queue_keeps_it_until_it_is_resumed"],
    "expires": [f"{_WHAT}test_job_that_expires_at_rest_is_dead_until_it_is_replayed"],
    "replayed": [f"{_WHAT}test_job_that_expires_at_rest_is_dead_until_it_is_replayed"],
    "time_limit": [f"{_WHAT}test_attempt_that_takes_too_long_fails"],
}
EVENTS = (
    *("cancelled", "killed", "frozen", "replayed", "unique=", "after=", "paused", "expires", "time_limit"),
    *("signing_keys", "partitions", "cluster"),
)

_OVERLAP = "contract/test_schedule_overlap.py::"
_WAYS_TO_END = (
    "test_skip_gives_no_job_until_the_last_one_has_ended",
    "test_wait_keeps_one_instant_until_the_last_job_has_ended",
)

CELLS: dict[str, dict[str, list[str]]] = {
    "Steps": _SAME
    | {
        "cancelled": ["contract/test_durable.py::test_cancelled_job_drops_its_steps"],
        "killed": [
            "faults/test_durable_faults.py::test_kept_step_never_runs_again_though_workers_are_killed",
            "faults/test_durable_faults.py::test_next_worker_goes_on_after_the_step_that_was_kept",
        ],
        "frozen": [
            "faults/test_durable_faults.py::test_late_twin_keeps_nothing_and_its_step_raises",
            "faults/test_durable_faults.py::test_next_worker_goes_on_after_the_step_that_was_kept",
            "contract/test_each.py::test_late_twin_keeps_no_position",
        ],
        "replayed": ["contract/test_durable.py::test_replayed_job_goes_on_where_it_failed"],
        "time_limit": [
            *_SAME["time_limit"],
            "faults/test_durable_faults.py::test_cancelled_at_any_await_a_step_that_has_run_is_kept",
        ],
        "signing_keys": [*_SAME["signing_keys"], "faults/test_durable_faults.py::test_step_of_a_stranger_is_not_read"],
    },
    "Sleep": _SAME
    | {
        "cancelled": ["contract/test_durable.py::test_sleeping_job_may_be_cancelled"],
        "killed": ["faults/test_durable_faults.py::test_next_worker_sleeps_for_the_rest_when_the_first_is_killed"],
        "frozen": [f"{_WHAT}test_late_twin_does_not_send_the_job_to_sleep"],
        "expires": [*_SAME["expires"], "contract/test_durable.py::test_sleep_beyond_the_expiry_sets_the_job_aside"],
        "time_limit": [*_SAME["time_limit"], f"{_WHAT}test_sleep_in_memory_counts_against_the_time_limit"],
    },
    "Messages": _SAME
    | {
        "cancelled": ["contract/test_waiting.py::test_waiting_job_may_be_cancelled_and_its_messages_are_dropped"],
        "killed": ["faults/test_waiting_faults.py::test_one_answer_whatever_dies"],
        "frozen": ["faults/test_waiting_faults.py::test_late_twin_neither_reads_nor_times_out"],
        "replayed": [
            "contract/test_waiting.py::test_message_of_another_type_sets_the_job_aside",
            "contract/test_waiting.py::test_timeout_that_ends_an_attempt_is_final",
        ],
        "signing_keys": [
            *_SAME["signing_keys"],
            "faults/test_waiting_faults.py::test_message_of_a_stranger_is_not_read",
        ],
    },
    "Undo": _SAME
    | {
        "cancelled": [
            "contract/test_undo.py::test_job_that_is_cancelled_while_it_runs_is_undone",
            "contract/test_undo.py::test_job_that_is_cancelled_while_it_has_left_its_worker_is_undone",
            "contract/test_undo.py::test_job_in_its_queue_is_undone_if_it_is_cancelled",
        ],
        "killed": ["faults/test_undo_faults.py::test_all_is_undone_though_workers_are_killed"],
        "frozen": [f"{_WHAT}test_late_twin_undoes_nothing"],
        "replayed": [
            "contract/test_undo.py::test_failed_job_is_undone_before_it_is_dead_lettered",
            "contract/test_undo.py::test_what_cannot_be_undone_is_tried_again_and_then_kept",
        ],
        "expires": ["contract/test_undo.py::test_job_that_expires_before_it_goes_on_is_undone"],
        "time_limit": ["contract/test_undo.py::test_time_limit_does_not_pass_for_undone"],
    },
    "Streams": _SAME
    | {
        "cancelled": ["contract/test_streams.py::test_cancelled_generator_is_closed"],
        "killed": ["faults/test_streams_faults.py::test_follower_gets_a_whole_run_though_workers_are_killed"],
        "frozen": ["faults/test_streams_faults.py::test_late_twin_appends_nothing"],
        "replayed": ["contract/test_streams.py::test_stream_of_a_dead_job_begins_anew_when_it_is_replayed"],
        "time_limit": [
            *_SAME["time_limit"],
            "contract/test_streams.py::test_generator_that_takes_too_long_is_closed",
        ],
        "signing_keys": [*_SAME["signing_keys"], "contract/test_streams.py::test_item_that_was_changed_is_not_read"],
    },
    "Groups": _SAME
    | {
        "cancelled": ["contract/test_groups.py::test_cancelled_member_has_ended_but_not_succeeded"],
        "killed": ["faults/test_groups_faults.py::test_callback_is_started_once_though_its_process_is_killed"],
        "frozen": [f"{_WHAT}test_late_twin_of_a_member_does_not_count"],
        "replayed": [
            "contract/test_groups.py::test_dead_member_holds_the_callback_until_it_was_replayed",
            "contract/test_groups.py::test_callback_after_the_end_runs_once_though_members_are_replayed",
        ],
        "unique=": [
            *_SAME["unique="],
            "contract/test_groups.py::test_unique_member_that_another_job_stands_for_is_not_counted",
            "contract/test_groups.py::test_bad_input_is_refused_before_anything_is_sent",
        ],
        "after=": [
            *_SAME["after="],
            "contract/test_groups.py::test_member_runs_after_others",
            "contract/test_groups.py::test_job_runs_after_a_callback",
        ],
        "paused": [*_SAME["paused"], "contract/test_groups.py::test_paused_queue_delays_its_members_and_the_callback"],
        "expires": ["contract/test_groups.py::test_member_that_expires_has_failed"],
        "partitions": [*_SAME["partitions"], "contract/test_groups.py::test_group_lies_in_one_partition"],
    },
    "Jobs that follow": _SAME
    | {
        "cancelled": ["contract/test_follow_ups.py::test_job_that_does_not_succeed_adds_nothing"],
        "killed": [
            "faults/test_follow_ups_faults.py::test_chain_is_neither_cut_nor_forked_though_workers_are_killed",
        ],
        "frozen": [f"{_WHAT}test_late_twin_adds_no_job_that_follows"],
        "unique=": [
            *_SAME["unique="],
            "contract/test_follow_ups.py::test_bad_input_is_refused_and_the_rest_is_kept",
        ],
        "after=": [
            *_SAME["after="],
            "contract/test_follow_ups.py::test_dependents_of_the_first_run_as_well",
            "contract/test_follow_ups.py::test_bad_input_is_refused_and_the_rest_is_kept",
        ],
    },
    "Limits and turns": _SAME
    | {
        "cancelled": [
            "contract/test_limits.py::test_place_is_free_however_a_job_ends",
            "contract/test_limits.py::test_job_that_is_cancelled_while_it_waits_leaves_the_line",
            "contract/test_turns.py::test_turn_is_passed_on_by_a_job_that_waits_for_a_place",
        ],
        "killed": ["faults/test_limits_faults.py::test_limits_hold_though_workers_are_killed"],
        "frozen": [f"{_WHAT}test_late_twin_frees_no_place"],
        "partitions": [
            *_SAME["partitions"],
            "contract/test_limits.py::test_where_jobs_are_spread_a_limit_counts_in_one",
        ],
    },
    "Strict order": _SAME
    | {
        "cancelled": ["contract/test_key_order.py::test_key_goes_on_when_a_job_is_cancelled"],
        "killed": ["faults/test_key_order_history.py::test_no_job_overtakes_another_of_its_key"],
        "frozen": [f"{_WHAT}test_late_twin_passes_no_turn_on"],
        "replayed": [
            *_SAME["replayed"],
            "contract/test_key_order.py::test_key_stops_at_a_dead_job_until_it_is_replayed",
            "contract/test_key_order.py::test_key_goes_on_past_a_dead_job_if_it_is_to",
        ],
        "expires": [*_SAME["expires"], "contract/test_key_order.py::test_job_that_expires_ends_in_its_turn"],
    },
    "Debouncing": _SAME
    | {
        "cancelled": ["contract/test_debounce.py::test_cancelled_job_is_not_replaced"],
        "killed": ["contract/test_debounce.py::test_job_whose_worker_died_keeps_its_arguments"],
        "frozen": [f"{_WHAT}test_late_twin_has_nothing_to_do_with_later_calls"],
        "replayed": [
            "contract/test_debounce.py::test_cancelled_job_is_not_replaced",
            "contract/test_debounce.py::test_replayed_job_is_replaced_while_it_waits",
        ],
        "unique=": [
            "contract/test_debounce.py::test_call_while_the_job_runs_begins_another",
            "contract/test_debounce.py::test_plain_unique_job_is_returned_and_not_replaced",
        ],
        "after=": [
            *_SAME["after="],
            "contract/test_debounce.py::test_bad_options_are_refused_before_anything_is_sent",
        ],
        "paused": [*_SAME["paused"], "contract/test_debounce.py::test_job_in_a_paused_queue_is_replaced_where_it_is"],
        "expires": [*_SAME["expires"], "contract/test_debounce.py::test_last_call_counts_for_expiry_and_options"],
        "time_limit": [
            *_SAME["time_limit"],
            "contract/test_debounce.py::test_job_that_has_begun_keeps_its_arguments_through_its_attempts",
        ],
        "signing_keys": [
            *_SAME["signing_keys"],
            "contract/test_debounce.py::test_last_call_wins_and_is_due_after_a_silence",
        ],
    },
    "Newest wins": _SAME
    | {
        "cancelled": [
            "contract/test_newest.py::test_name_is_the_running_ones_again_if_the_one_behind_it_ends_first",
            "contract/test_newest.py::test_call_decides_whether_it_replaces",
        ],
        "killed": [
            "contract/test_newest.py::test_newest_runs_when_the_worker_of_the_old_one_has_died",
            "faults/test_newest_faults.py::test_never_two_of_a_name_at_once_and_the_last_runs_though_workers_are_killed",
        ],
        "frozen": [f"{_WHAT}test_late_twin_does_not_start_the_newest"],
        "replayed": ["contract/test_newest.py::test_dead_job_is_not_replaced"],
        "unique=": ["contract/test_newest.py::test_call_decides_whether_it_replaces"],
        "after=": [
            *_SAME["after="],
            "contract/test_newest.py::test_jobs_after_one_that_is_replaced_run_after_the_newest",
            "contract/test_newest.py::test_bad_options_are_refused_before_anything_is_sent",
        ],
        "paused": [*_SAME["paused"], "contract/test_newest.py::test_job_in_a_paused_queue_is_replaced_where_it_is"],
        "expires": [*_SAME["expires"], "contract/test_newest.py::test_last_call_counts_for_expiry"],
        "time_limit": [
            *_SAME["time_limit"],
            "contract/test_newest.py::test_job_of_the_same_task_that_waits_for_its_next_attempt",
        ],
        "signing_keys": [
            *_SAME["signing_keys"],
            "contract/test_newest.py::test_job_that_waits_is_replaced_in_its_place",
        ],
    },
    "Histories": _SAME
    | {
        "cancelled": [
            "contract/test_history.py::test_each_way_to_end_is_in_the_history_once",
            "contract/test_history.py::test_job_that_is_cancelled_while_it_runs_ends_once",
        ],
        "killed": ["faults/test_history_faults.py::test_each_end_has_one_entry_though_workers_are_killed"],
        "frozen": [f"{_WHAT}test_late_twin_adds_no_entry"],
        "replayed": [
            *_SAME["replayed"],
            "contract/test_history.py::test_replayed_job_is_in_the_history_for_each_of_its_ends",
        ],
        "after=": [*_SAME["after="], "contract/test_history.py::test_each_way_to_end_is_in_the_history_once"],
        "partitions": [*_SAME["partitions"], "contract/test_history.py::test_history_is_merged_over_partitions"],
    },
    "Attempts": _SAME
    | {
        "cancelled": ["contract/test_attempts.py::test_cancelled_job_has_its_attempts_as_long_as_that_is_known"],
        "killed": [
            "contract/test_attempts.py::test_attempt_whose_worker_died_is_noted_by_the_one_that_finds_it",
            "faults/test_attempts_faults.py::test_each_attempt_is_noted_once_though_workers_are_killed",
        ],
        "frozen": [f"{_WHAT}test_late_twin_has_no_attempt"],
        "replayed": [
            *_SAME["replayed"],
            "contract/test_attempts.py::test_dead_job_shows_its_attempts_until_it_is_purged",
        ],
        "expires": [*_SAME["expires"], "contract/test_attempts.py::test_what_is_no_attempt_is_not_noted"],
        "time_limit": [
            *_SAME["time_limit"],
            "contract/test_attempts.py::test_time_limit_deadline_and_a_body_that_is_undone_are_noted",
        ],
        "partitions": [
            *_SAME["partitions"],
            "contract/test_attempts.py::test_attempts_lie_in_the_partition_of_the_job",
        ],
    },
    "Told of a death": _SAME
    | {
        "cancelled": ["contract/test_on_dead.py::test_job_that_succeeds_or_is_cancelled_is_not_told_of"],
        "killed": ["faults/test_on_dead_faults.py::test_each_death_is_told_once_though_workers_are_killed"],
        "frozen": [f"{_WHAT}test_late_twin_does_not_die"],
        "replayed": [
            *_SAME["replayed"],
            "contract/test_on_dead.py::test_replayed_job_that_dies_again_is_told_of_again",
        ],
        "after=": [*_SAME["after="], "contract/test_on_dead.py::test_each_way_to_die_is_told"],
        "signing_keys": [
            *_SAME["signing_keys"],
            "contract/test_on_dead.py::test_signature_of_the_dead_job_counts",
        ],
    },
    "Priorities": _SAME
    | {
        "cancelled": ["contract/test_priority.py::test_waiting_job_is_cancelled"],
        "killed": ["contract/test_priority.py::test_recovered_job_is_the_next_of_its_priority"],
        "frozen": [f"{_WHAT}test_late_twin_puts_no_job_back"],
        "replayed": [*_SAME["replayed"], "contract/test_priority.py::test_replayed_job_keeps_its_priority"],
        "unique=": [*_SAME["unique="], "contract/test_priority.py::test_unique_name_holds_at_each_priority"],
        "after=": [*_SAME["after="], "contract/test_priority.py::test_job_after_others_comes_to_its_priority"],
        "paused": [*_SAME["paused"], "contract/test_priority.py::test_paused_queue_gives_out_none"],
        "expires": [
            *_SAME["expires"],
            "contract/test_expiry.py::test_job_that_expires_in_a_paused_queue_is_ended",
        ],
        "time_limit": [
            *_SAME["time_limit"],
            "contract/test_priority.py::test_job_that_is_tried_again_keeps_its_priority",
        ],
        "signing_keys": [
            *_SAME["signing_keys"],
            "contract/test_priority.py::test_number_is_outside_of_the_signature",
        ],
    },
    "Ids of your own": _SAME
    | {
        "cancelled": [
            "contract/test_own_ids.py::test_cancelled_job_leaves_nothing_of_its_id",
            "contract/test_own_ids.py::test_cancelled_job_with_a_limit_keeps_its_id_until_a_claim",
        ],
        "killed": [f"{_WHAT}test_late_twin_frees_no_id"],
        "frozen": [f"{_WHAT}test_late_twin_frees_no_id"],
        "replayed": [*_SAME["replayed"], "contract/test_own_ids.py::test_dead_job_keeps_its_id"],
        "unique=": ["contract/test_own_ids.py::test_id_does_not_go_with_other_names"],
        "after=": [
            *_SAME["after="],
            "contract/test_own_ids.py::test_id_names_its_job_for_those_who_look",
            "contract/test_own_ids.py::test_id_does_not_go_with_other_names",
        ],
        "expires": [*_SAME["expires"], "contract/test_own_ids.py::test_dead_job_keeps_its_id"],
        "partitions": [*_SAME["partitions"], "contract/test_own_ids.py::test_id_is_found_in_its_partition"],
    },
    "Deadlines": _SAME
    | {
        "cancelled": ["contract/test_job_deadline.py::test_cancelled_job_does_not_die_at_its_deadline"],
        "killed": ["contract/test_job_deadline.py::test_later_attempt_has_the_rest_of_the_time"],
        "frozen": [f"{_WHAT}test_late_twin_does_not_end_at_its_deadline"],
        "replayed": [*_SAME["replayed"], "contract/test_job_deadline.py::test_replayed_job_has_its_time_anew"],
        "after=": [*_SAME["after="], "contract/test_job_deadline.py::test_job_after_one_that_missed_it_is_dead"],
        "paused": [
            *_SAME["paused"],
            "contract/test_expiry.py::test_job_with_a_deadline_ends_so_too_in_a_paused_queue",
        ],
        "expires": [
            *_SAME["expires"],
            "contract/test_job_deadline.py::test_deadline_that_cannot_be_is_refused_before_anything_is_sent",
            "contract/test_job_deadline.py::test_job_that_is_done_in_time_succeeds_and_the_latest_option_holds",
            "contract/test_job_deadline.py::test_job_that_sleeps_at_its_deadline_is_not_done",
        ],
        "time_limit": [
            *_SAME["time_limit"],
            "contract/test_job_deadline.py::test_shorter_time_limit_comes_first_and_is_retried",
            "contract/test_job_deadline.py::test_attempt_that_runs_at_the_deadline_is_cancelled_and_the_last",
        ],
        "signing_keys": [
            *_SAME["signing_keys"],
            "contract/test_job_deadline.py::test_signature_covers_it_and_not_since_when_it_counts",
        ],
    },
    "Shared limits and rates": _SAME
    | {
        "cancelled": ["contract/test_shared_limits.py::test_cancelled_job_in_line_lets_the_next_one_in"],
        "killed": [
            "faults/test_lines_faults.py::test_shared_limit_holds_though_workers_are_killed",
            "faults/test_lines_faults.py::test_shared_limits_hold_whatever_dies",
        ],
        "frozen": [f"{_WHAT}test_late_twin_frees_no_place"],
        "paused": [
            *_SAME["paused"],
            "contract/test_shared_limits.py::test_jobs_of_a_queue_that_nobody_serves_hold_up_no_others",
        ],
        "expires": [
            *_SAME["expires"],
            "contract/test_rates.py::test_jobs_that_have_expired_leave_the_rate_to_others",
        ],
        "time_limit": [
            *_SAME["time_limit"],
            "contract/test_shared_limits.py::test_each_attempt_costs_its_part_of_a_rate",
        ],
        "partitions": [
            *_SAME["partitions"],
            "contract/test_shared_limits.py::test_where_jobs_are_spread_all_that_share_lie_in_one_partition",
        ],
    },
    "Schedules that do not overlap": _SAME
    | {
        "cancelled": [f"{_OVERLAP}{name}" for name in _WAYS_TO_END],
        "killed": [
            "faults/test_stored_schedules_faults.py::test_jobs_do_not_overlap_whoever_is_killed_or_stands_still",
        ],
        "frozen": [f"{_WHAT}test_late_twin_lets_no_instant_run"],
        "replayed": [*_SAME["replayed"], f"{_OVERLAP}test_replayed_job_holds_up_the_next_if_it_is_the_last"],
        "unique=": ["contract/test_stored_schedules.py::test_bad_input_is_refused_before_anything_is_sent"],
        "paused": [*_SAME["paused"], *(f"{_OVERLAP}{name}" for name in _WAYS_TO_END)],
    },
}

_SYNC = "contract/test_sync_coordinator.py::"
BESIDE_JOBS = ("cancelled", "killed", "frozen", "closes")
CELLS_BESIDE_JOBS: dict[str, dict[str, list[str]]] = {
    "Lifespan": {
        "cancelled": [
            "contract/test_lifespan.py::test_cancelled_worker_ends_it_after_its_jobs",
            "contract/test_lifespan.py::test_second_cancellation_cancels_its_end",
        ],
        "killed": ["faults/test_lifespan_faults.py::test_each_of_several_processes_has_one_of_its_own"],
        "frozen": ["contract/test_lifespan.py::test_it_goes_on_when_jobs_of_it_are_lost"],
        "closes": ["faults/test_lifespan_faults.py::test_terminated_worker_ends_it_after_the_last_job"],
    },
    "Instants of a schedule": {
        "cancelled": [
            "faults/test_stored_schedules_faults.py::test_cancelled_at_any_await_a_follower_leaves_no_half_of_a_job",
        ],
        "killed": [
            "faults/test_stored_schedules_faults.py::test_no_instant_is_lost_or_doubled_whoever_is_killed_or_stands_still",
            "faults/test_stored_schedules_faults.py::test_instant_of_a_worker_that_died_between_its_two_steps_comes_later",
            "unit/test_schedule.py::test_jitter_is_the_same_in_every_release",
        ],
        "frozen": [
            "contract/test_stored_schedules.py::test_worker_that_stood_still_adds_nothing_after_another_took_over",
            f"{_OVERLAP}test_schedule_has_instants_from_its_start_to_its_end_only",
        ],
        "closes": ["contract/test_stored_schedules.py::test_missed_instants_are_made_up_for_as_told"],
    },
    "Once": {
        "cancelled": ["contract/test_once.py::test_cancelled_caller_leaves_the_computation_to_the_next"],
        "killed": ["faults/test_once_faults.py::test_next_computes_when_the_holder_was_killed"],
        "frozen": ["contract/test_once.py::test_lost_lease_stops_the_function_and_the_next_computes"],
        "closes": ["contract/test_once.py::test_closing_ends_who_waits_and_what_is_computed_anew"],
    },
    "Without an event loop": {
        "cancelled": [
            f"{_SYNC}test_interrupt_leaves_nothing_in_line_and_nothing_held",
            f"{_SYNC}test_what_is_granted_to_an_interrupted_caller_is_released",
        ],
        "killed": ["contract/test_permits.py::test_waiter_gets_in_when_a_dead_holder_s_lease_lapses"],
        "frozen": [
            f"{_SYNC}test_lost_lease_is_known_and_raised_at_the_end",
            "contract/test_permits.py::test_lapsed_permit_is_free",
        ],
        "closes": [f"{_SYNC}test_closing_releases_and_wakes_who_waits"],
    },
    "Budgets": {
        "cancelled": [
            "faults/test_reservations_faults.py::test_cancelled_at_any_await_takes_all_or_none",
            "contract/test_reservations.py::test_estimate_counts_if_nothing_else_is_said",
        ],
        "killed": ["faults/test_reservations_faults.py::test_estimate_of_a_killed_process_counts"],
        "frozen": ["contract/test_reservations.py::test_more_than_all_never_comes_back"],
        "closes": [
            "faults/test_reservations_faults.py::test_settlement_of_a_process_that_closes_at_once_counts",
            "contract/test_reservations.py::test_closed_coordinator_settles_nothing",
        ],
    },
}


def lines() -> dict[str, list[str]]:
    """The events in the table of each heading."""
    found: dict[str, list[str]] = {}
    for section in PAGE.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", body, re.MULTILINE)
        found[title] = rows[2:]  # behind the head and its rule
    return found


def test_page_has_a_table_for_each_feature_with_the_same_lines() -> None:
    """In the same order."""
    found = lines()
    assert list(found) == [*CELLS, *CELLS_BESIDE_JOBS]
    for title, events in found.items():
        words = EVENTS if title in CELLS else BESIDE_JOBS
        assert len(events) == len(words), title
        for event, word in zip(events, words, strict=True):
            assert word in event, (title, event)


@pytest.mark.parametrize("feature", [*CELLS, *CELLS_BESIDE_JOBS])
def test_each_line_has_a_test(feature: str) -> None:
    """That is there by this name."""
    cells = CELLS.get(feature) or CELLS_BESIDE_JOBS[feature]
    assert cells.keys() == set(EVENTS if feature in CELLS else BESIDE_JOBS)
    for tests in cells.values():
        for named in tests:
            file, _, name = named.partition("::")
            text = (ROOT / "tests" / file).read_text("utf-8")
            assert re.search(rf"^(?:async )?def {name}\(", text, re.MULTILINE), named
