"""Authentication, events, errors, limits and versioning."""

from tests.interface.rule import (
    ACCOUNT,
    ANSWERS,
    CLIENT,
    CONFIG,
    DAEMON,
    FAULTS,
    HTTP,
    LISTS,
    LOGIN,
    MENU,
    MOVES,
    ORDER,
    POLL,
    QUEUE,
    RETRY,
    SERVER,
    TOKENS,
    VERDICTS,
    WORLD,
    NotOurs,
    Rule,
    a_day,
    switched,
)

AUTHENTICATION = [
    Rule(
        "auth-stores",
        "Authentication 1 / the client stores access_token and expiration_date",
        ACCOUNT + "test_the_token_is_kept_over_a_restart",
        LOGIN + "test_a_login_gives_a_token_for_24_hours_in_istanbul_time",
    ),
    Rule(
        "auth-header",
        "Authentication 2 / every request other than login carries the token",
        CLIENT + "test_a_list_is_a_get[variables]",
        LOGIN + "test_every_other_operation_wants_a_token_first[missing-get_foods]",
    ),
    Rule(
        "auth-24-hours",
        "Authentication 3 / a token is valid for 24 hours",
        TOKENS + "test_a_validity_is_never_past_and_never_over_a_day",
        LOGIN + "test_a_token_ends_after_24_hours",
    ),
    Rule(
        "auth-renewal",
        "Authentication 3 / a new token is obtained before expiry",
        DAEMON + "test_a_token_is_renewed_before_it_ends",
        LOGIN + "test_an_earlier_token_stays_valid_after_a_new_login",
    ),
    Rule(
        "auth-an-hour-ahead",
        "Authentication 3 / about one hour ahead is suggested",
        TOKENS + "test_a_day_old_token_is_renewed_an_hour_ahead",
        NotOurs("A practice of clients; the service sees a login like any other."),
    ),
    Rule(
        "auth-missing",
        "Authentication 4 / a missing token gives 401",
        CLIENT + "test_a_poll_without_a_token_is_not_sent",
        LOGIN + "test_every_other_operation_wants_a_token_first[missing-accept]",
    ),
    Rule(
        "auth-invalid",
        "Authentication 4 / an invalid token gives 401",
        CLIENT + "test_after_a_401_one_login_and_one_repeat[accept]",
        LOGIN + "test_every_other_operation_wants_a_token_first[invented-accept]",
    ),
    Rule(
        "auth-expired",
        "Authentication 4 / an expired token gives 401",
        ACCOUNT + "test_a_kept_token_that_has_run_out_is_not_used",
        LOGIN + "test_a_token_ends_after_24_hours",
    ),
    Rule(
        "auth-message-one",
        "Authentication 4 / the message is Token expired or invalid",
        switched("token_message", "Token expired or invalid"),
        LOGIN + "test_every_other_operation_wants_a_token_first[invented-get_variables]",
    ),
    Rule(
        "auth-message-other",
        "Authentication 4 / or Invalid or expired access token",
        switched("token_message", "Invalid or expired access token"),
        LOGIN + "test_the_other_message_of_a_401_can_be_chosen",
    ),
    Rule(
        "auth-wrong-credentials",
        "Authentication 5 / login with wrong credentials gives 401",
        ACCOUNT + "test_wrong_credentials_are_tried_with_growing_waits",
        LOGIN + "test_a_wrong_credential_is_refused[app_secret_key]",
    ),
    Rule(
        "auth-missing-credentials",
        "Authentication 5 / missing credentials give 422",
        CLIENT + "test_a_login_that_fails_says_how_and_is_not_repeated[served1-Refused-missing_field]",
        LOGIN + "test_a_login_without_a_credential_lacks_a_field[nothing]",
    ),
    Rule(
        "auth-scope-vendor",
        "Authentication 6 / credentials can be vendor-wide",
        LISTS + "test_all_lists_are_there_after_one_reading",
        QUEUE + "test_a_list_holds_only_orders_within_reach",
    ),
    Rule(
        "auth-scope-branch",
        "Authentication 6 / or branch-specific",
        LISTS + "test_an_account_asks_only_about_its_own_restaurants",
        MENU + "test_a_wrong_restaurant_is_an_error[of another account-GET-/restaurants/status/get/]",
    ),
    Rule(
        "auth-https",
        "Authentication 7 / plain HTTP is not allowed",
        CONFIG + "test_what_cannot_be_right_is_refused_with_its_key_and_remedy[plain http]",
        SERVER + "test_plain_http_is_refused",
    ),
    Rule(
        "auth-new-login-ends",
        "Authentication 8 / whether an earlier token stops working: not shown, it may",
        switched("new_login_ends_old_token", value=True),
        LOGIN + "test_an_earlier_token_can_end_with_a_new_login",
    ),
    Rule(
        "auth-new-login-keeps",
        "Authentication 8 / whether an earlier token stops working: not shown, it may go on",
        switched("new_login_ends_old_token", value=False),
        LOGIN + "test_an_earlier_token_stays_valid_after_a_new_login",
    ),
    Rule(
        "auth-new-login-during-calls",
        "Authentication 8 / whether an earlier token stops working: not shown, it may under a call of ours",
        ACCOUNT + "test_a_login_that_ends_the_old_token_costs_no_call_its_answer",
        LOGIN + "test_an_earlier_token_can_end_with_a_new_login",
    ),
    Rule(
        "auth-revoke",
        "Authentication 9 / an operation to revoke a token: not shown",
        CLIENT + "test_the_client_has_the_operations_it_needs_and_no_other",
        MENU + "test_what_the_specification_does_not_name_is_a_page[PUT-/auth/revoke-404]",
    ),
]

EVENTS = [
    Rule(
        "events-none",
        "Events / no callbacks or notifications",
        CLIENT + "test_the_client_has_the_operations_it_needs_and_no_other",
        WORLD + "test_importing_the_sandbox_loads_no_network_library",
    ),
    Rule(
        "events-by-polling",
        "Events / a client learns of orders and changes by polling",
        DAEMON + "test_polls_follow_each_other_and_never_inside_the_cooldown",
        QUEUE + "test_a_change_of_status_brings_an_acknowledged_order_back",
    ),
    Rule(
        "events-reappear",
        "Events / an order reappears after each status change until acknowledged",
        POLL + "test_another_status_is_a_new_revision",
        QUEUE + "test_a_change_of_status_brings_an_acknowledged_order_back",
    ),
]

CODES = [
    Rule(
        "error-401-token",
        "Errors / 401: missing, invalid or expired token",
        ANSWERS + "test_the_text_of_a_bad_token_is_a_401_under_any_status[200]",
        LOGIN + "test_every_other_operation_wants_a_token_first[empty-complete]",
    ),
    Rule(
        "error-401-login",
        "Errors / 401: invalid login credentials",
        ANSWERS + "test_wrong_credentials_have_a_code_of_their_own",
        LOGIN + "test_a_wrong_credential_is_refused[rest_secret_key]",
    ),
    Rule(
        "error-403",
        "Errors / 403: the id in the path is no UUID (order operations)",
        ANSWERS + "test_a_known_text_decides_under_any_status[bad_url_id-403]",
        MOVES + "test_an_id_that_is_no_uuid_is_a_bad_address[no-uuid-complete]",
    ),
    Rule(
        "error-404-order",
        "Errors / 404: order not found",
        ANSWERS + "test_a_known_text_decides_under_any_status[order_not_found-404]",
        MOVES + "test_an_order_of_another_account_is_not_found[accept]",
    ),
    Rule(
        "error-404-food",
        "Errors / 404: menu item not found",
        ANSWERS + "test_a_known_text_decides_under_any_status[food_not_found-404]",
        MENU + "test_a_wrong_food_is_an_error[999999-404-\\xfcr\\xfcn bulunamad\\u0131-/foods/status-active/]",
    ),
    Rule(
        "error-404-restaurant",
        "Errors / 404: restaurant not found",
        ANSWERS + "test_a_known_text_decides_under_any_status[restaurant_not_found-404]",
        MENU + "test_a_wrong_restaurant_is_an_error[unknown-PUT-/restaurants/status/open/]",
    ),
    Rule(
        "error-422",
        "Errors / 422: a missing required field, or an invalid reason_id",
        ANSWERS + "test_a_known_text_decides_under_any_status[missing_field-422]",
        MOVES + "test_the_body_is_checked_before_the_order_is_looked_up[cancel]",
    ),
    Rule(
        "error-429",
        "Errors / 429: get-current called during its cooldown",
        ANSWERS + "test_the_text_of_too_many_requests_is_a_429_under_any_status[429]",
        QUEUE + "test_a_call_inside_the_cooldown_is_refused[early]",
    ),
    Rule(
        "error-429-message",
        "Errors / 429: the message asks in Turkish to wait 30 seconds",
        ANSWERS + "test_the_detail_is_one_short_line",
        QUEUE + "test_the_refusal_asks_in_turkish_to_wait_30_seconds",
    ),
]

NOT_SHOWN = [
    *(
        Rule(
            f"error-status-{name}-{status}",
            f"Errors not shown / HTTP statuses of the errors of {name}: it may be {status}",
            a_day(f"errors come under {status}"),
            sandbox,
        )
        for name, sandbox in {
            "complete": MOVES + "test_errors_of_complete_can_have_any_status[unknown]",
            "restaurant": MENU + "test_errors_of_restaurants_can_have_any_status[PUT-/restaurants/status/open/]",
            "food": MENU + "test_errors_of_foods_can_have_any_status[/foods/status-passive/]",
        }.items()
        for status in (200, 400, 403, 404, 422, 500)
    ),
    *(
        Rule(
            f"error-status-token-{name}",
            f"Errors not shown / HTTP statuses of the errors of {name}: a bad token may be no 401",
            a_day("a bad token comes under 403"),
            MOVES + "test_a_bad_token_at_complete_stays_a_401_unless_switched",
        )
        for name in ("complete", "restaurant", "food")
    ),
    *(
        Rule(
            f"error-500-{name.replace(' ', '-')}",
            f"Errors not shown / body of server errors: it may be {name}",
            a_day(f"an error of the server has {name}"),
            FAULTS + "test_any_answer_can_be_put_in[any bytes]",
        )
        for name in ("no body", "a page", "an envelope", "half an envelope", "a success", "no object")
    ),
    *(
        Rule(
            f"error-out-of-turn-{status}",
            f"Errors not shown / error of an operation out of turn: its status may be {status}",
            a_day(f"out of turn is a no under {status}"),
            MOVES + "test_a_move_that_is_not_allowed_can_be_answered_in_other_ways[409-accept in 2]",
        )
        for status in (200, 400, 401, 403, 404, 422, 429)
    ),
    Rule(
        "error-out-of-turn-500",
        "Errors not shown / error of an operation out of turn: it may look like one of the server",
        a_day("out of turn is an error of the server, 500"),
        MOVES + "test_a_move_that_is_not_allowed_can_be_answered_in_other_ways[409-accept in 2]",
    ),
]

RETRIES = [
    Rule(
        "retry-429",
        "Retry guidance / after 30 seconds on 429",
        RETRY + "test_a_429_waits_for_the_cooldown",
        FAULTS + "test_any_answer_can_be_put_in[429]",
    ),
    Rule(
        "retry-500-backoff",
        "Retry guidance / with backoff on 500",
        RETRY + "test_a_5xx_is_retried_after_growing_waits",
        FAULTS + "test_a_false_answer_comes_before_or_after_the_effect",
    ),
    Rule(
        "retry-500-three",
        "Retry guidance / at most three times on 500",
        VERDICTS + "test_there_are_three_resends_at_most",
        FAULTS + "test_a_fault_meets_the_calls_that_fit[for ever]",
    ),
    *(
        Rule(
            f"retry-{status}",
            f"Retry guidance / do not retry on {status}",
            VERDICTS + f"test_a_definite_no_is_final[{case}]",
            sandbox,
        )
        for status, case, sandbox in (
            (400, "400 in other words", MENU + "test_errors_of_foods_can_have_any_status[/foods/status-active/]"),
            (403, "403", MOVES + "test_an_id_that_is_no_uuid_is_a_bad_address[no-uuid-accept]"),
            (404, "404", MOVES + "test_an_unknown_order_is_not_found[cancel]"),
        )
    ),
]

LIMITS = [
    Rule(
        "limit-cooldown",
        "Limits / 30 seconds between calls of get-current",
        DAEMON + "test_polls_follow_each_other_and_never_inside_the_cooldown",
        QUEUE + "test_a_call_inside_the_cooldown_is_refused[in time]",
    ),
    Rule(
        "limit-cooldown-filter",
        "Limits / 30 seconds between calls of get-current, with the filter too",
        NotOurs("The daemon polls without the filter; the client method has no clock of its own."),
        QUEUE + "test_the_filter_does_not_get_around_the_cooldown",
    ),
    Rule(
        "limit-cooldown-restart",
        "Limits / whether a 429 restarts the cooldown: not shown, it may",
        switched("cooldown_restarts_on_429", value=True),
        QUEUE + "test_the_cooldown_counts_from_the_last_accepted_call_unless_switched[switched on]",
    ),
    Rule(
        "limit-cooldown-no-restart",
        "Limits / whether a 429 restarts the cooldown: not shown, it may not",
        switched("cooldown_restarts_on_429", value=False),
        QUEUE + "test_the_cooldown_counts_from_the_last_accepted_call_unless_switched[default]",
    ),
    Rule(
        "limit-cooldown-over-restarts",
        "Limits / 30 seconds between calls of get-current, also when we start again",
        POLL + "test_after_a_restart_the_cooldown_is_kept",
        QUEUE + "test_the_cooldown_belongs_to_the_credential_not_to_the_token",
    ),
    Rule(
        "limit-token",
        "Limits / token validity is 24 hours",
        TOKENS + "test_the_service_is_believed_up_to_a_day[years]",
        LOGIN + "test_a_token_ends_after_24_hours",
    ),
    Rule(
        "limit-token-shorter",
        "Limits / token validity is 24 hours, and a shorter one is survived",
        switched("token_seconds", 300.0),
        LOGIN + "test_tokens_can_end_at_once",
    ),
    Rule(
        "limit-reason",
        "Limits / reason_id is 1 to 8",
        "tests/rules/test_outbox.py::test_the_first_and_the_last_reason_are_reasons",
        MOVES + "test_cancelling_needs_a_reason_from_1_to_8[{'reason_id': -1}-Invalid reason_id]",
    ),
    Rule(
        "limit-polling",
        "Limits / recommended polling interval is 30 seconds or more",
        "tests/config/test_example.py::test_a_small_file_is_enough_and_the_rest_has_the_documented_defaults",
        QUEUE + "test_the_cooldown_can_be_shorter",
    ),
    Rule(
        "limit-menu-cache",
        "Limits / recommended menu cache time is 30 minutes or more",
        DAEMON + "test_the_menu_is_never_read",
        MENU + "test_the_menu_has_its_own_limit",
    ),
    *(
        Rule(
            f"limit-menu-{seconds}",
            f"Limits not shown / rate limit interval of the menu listing: it may be {seconds} s",
            CLIENT + "test_the_client_has_the_operations_it_needs_and_no_other",
            MENU + "test_the_menu_has_its_own_limit",
        )
        for seconds in (0, 60, 1800)
    ),
    Rule(
        "limit-preparing-time-none",
        "Limits not shown / bounds of preparing_time: there may be none",
        a_day("as the sandbox is"),
        MOVES + "test_the_longest_preparation_time_can_be_chosen[None-100000-2]",
    ),
    Rule(
        "limit-preparing-time-some",
        "Limits not shown / bounds of preparing_time: there may be some",
        a_day("no longer than an hour"),
        MOVES + "test_the_longest_preparation_time_can_be_chosen[60-61-1]",
    ),
    Rule(
        "limit-request-size",
        "Limits not shown / request size: there may be one",
        CLIENT + "test_no_request_is_longer_than_a_line",
        NotOurs("A limit that nobody knows is not played; no request of ours could meet it."),
    ),
    *(
        Rule(
            f"limit-page-{size}",
            f"Limits not shown / page size: it may be {size}",
            switched("list_limit", size),
            QUEUE + "test_a_list_can_be_limited",
        )
        for size in (1, 2, 5)
    ),
    Rule(
        "limit-page-unknown-outcome",
        "Limits not shown / page size: a list may lack an order for want of room",
        "tests/jobs/test_open_points.py::test_a_short_list_makes_no_verdict_wrong[newest_first-accept-1-after]",
        QUEUE + "test_a_list_can_be_limited",
    ),
    Rule(
        "limit-page-none",
        "Limits not shown / page size: there may be none",
        HTTP + "test_the_largest_body_is_32_megabytes",
        QUEUE + "test_a_shuffled_list_is_complete",
    ),
    Rule(
        "limit-others",
        "Limits not shown / other rate limits: each operation may have one",
        a_day("each operation has a limit"),
        FAULTS + "test_any_answer_can_be_put_in[429]",
    ),
]

VERSIONING = [
    Rule(
        "version-not-in-paths",
        "Versioning / no version marker in any path",
        CLIENT + "test_no_path_names_a_version[accept]",
        MENU + "test_no_path_names_a_version",
    ),
    Rule(
        "version-not-in-headers",
        "Versioning / no version marker in any header",
        HTTP + "test_a_request_arrives_as_it_was_meant",
        MENU + "test_no_header_of_an_answer_names_a_version",
    ),
    Rule(
        "version-unknown-fields",
        "Versioning / not shown, so that a field more is no error",
        ORDER + "test_the_status_and_unknown_fields_are_no_facts[unknown field]",
        WORLD + "test_a_caller_can_put_any_value_in",
    ),
]

RULES = [*AUTHENTICATION, *EVENTS, *CODES, *NOT_SHOWN, *RETRIES, *LIMITS, *VERSIONING]
