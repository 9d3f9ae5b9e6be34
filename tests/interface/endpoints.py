"""Endpoints."""

from tests.interface.rule import (
    ANSWERS,
    BOTH,
    CLIENT,
    DAEMON,
    LISTING,
    LISTS,
    LOGIN,
    MENU,
    MOVES,
    POLL,
    QUEUE,
    READERS,
    TABLES,
    VERDICTS,
    Rule,
    a_day,
    switched,
)

ALL = [
    Rule(
        "header-everywhere",
        "Endpoints / all but login require the Access-Token header",
        CLIENT + "test_an_action_is_a_put[complete]",
        LOGIN + "test_every_other_operation_wants_a_token_first[missing-complete]",
    ),
    Rule(
        "success-is-200",
        "Endpoints / success has HTTP 200 and the envelope",
        ANSWERS + "test_any_2xx_can_be_a_success[200]",
        MOVES + "test_the_moves_are_those_of_the_specification[accept in 1]",
    ),
    Rule(
        "data-is-ok",
        "Endpoints / an acknowledgement alone is data OK",
        CLIENT + "test_success_with_other_data_is_success_and_said_once_per_operation",
        QUEUE + "test_an_order_repeats_until_it_is_acknowledged",
    ),
]

PUTS = {
    "success": ("acknowledge", QUEUE + "test_an_order_repeats_until_it_is_acknowledged"),
    "accept": ("accept", MOVES + "test_the_moves_are_those_of_the_specification[accept in 1]"),
    "ontheway": ("on_the_way", MOVES + "test_the_moves_are_those_of_the_specification[on_the_way in 2]"),
    "complete": ("complete", MOVES + "test_the_moves_are_those_of_the_specification[complete in 16]"),
    "cancel": ("cancel", MOVES + "test_the_moves_are_those_of_the_specification[cancel in 1]"),
    "open": ("open_restaurant", MENU + "test_a_restaurant_closes_and_opens"),
    "close": ("close_restaurant", MENU + "test_a_restaurant_closes_and_opens"),
    "status-passive": ("deactivate_food", MENU + "test_an_inactive_food_is_not_ordered_and_old_orders_keep_it"),
    "status-active": ("activate_food", MENU + "test_an_inactive_food_is_not_ordered_and_old_orders_keep_it"),
}
PATHS = [
    *(
        Rule(
            f"put-{word}",
            f"Endpoints / PUT {word}: its path, its body or none, data OK",
            CLIENT + f"test_an_action_is_a_put[{name}]",
            sandbox,
        )
        for word, (name, sandbox) in PUTS.items()
    ),
    Rule(
        "post-login",
        "Endpoints / POST auth/login",
        CLIENT + "test_a_login_carries_no_token",
        LOGIN + "test_json_with_a_charset_is_read",
    ),
    Rule(
        "get-restaurants",
        "Endpoints / GET restaurants/get",
        CLIENT + "test_a_list_is_a_get[restaurants]",
        MENU + "test_a_branch_credential_reaches_one_restaurant",
    ),
    Rule(
        "get-status",
        "Endpoints / GET restaurants/status/get",
        CLIENT + "test_a_list_is_a_get[status]",
        MENU + "test_a_restaurant_closes_and_opens",
    ),
    Rule(
        "get-current",
        "Endpoints / GET orders/get-current",
        CLIENT + "test_the_current_orders",
        QUEUE + "test_the_list_is_empty_when_nothing_was_ordered",
    ),
    Rule(
        "get-reasons",
        "Endpoints / GET orders/cancel-reasons",
        CLIENT + "test_a_list_is_a_get[reasons]",
        MENU + "test_the_cancel_reasons_are_the_eight",
    ),
    Rule(
        "get-variables",
        "Endpoints / GET orders/variables",
        CLIENT + "test_a_list_is_a_get[variables]",
        MENU + "test_the_variables_are_those_of_the_tables[True-Kredi Kart\\u0131 (pre-paid)]",
    ),
]

LOGINS = [
    Rule(
        "login-without-token",
        "1 login / no Access-Token header",
        CLIENT + "test_a_login_carries_no_token",
        LOGIN + "test_a_login_gives_a_token_for_24_hours_in_istanbul_time",
    ),
    Rule(
        "login-content-type",
        "1 login / header Content-Type: application/json",
        "tests/marketplace/test_http.py::test_a_request_arrives_as_it_was_meant",
        LOGIN + "test_a_login_without_readable_json_lacks_its_fields[a form]",
    ),
    Rule(
        "login-app-secret",
        "1 login / app_secret_key is a string and required",
        CLIENT + "test_a_login_carries_no_token",
        LOGIN + "test_a_login_without_a_credential_lacks_a_field[no app_secret_key]",
    ),
    Rule(
        "login-rest-secret",
        "1 login / rest_secret_key is a string and required",
        CLIENT + "test_a_login_carries_no_token",
        LOGIN + "test_a_login_without_a_credential_lacks_a_field[no rest_secret_key]",
    ),
    Rule(
        "login-rest-secret-unique",
        "1 login / rest_secret_key is unique per vendor or branch",
        "tests/config/test_accounts.py::test_the_fingerprint_hangs_on_address_and_secrets_and_not_on_the_name",
        QUEUE + "test_the_cooldown_belongs_to_the_credential_not_to_the_token",
    ),
    Rule(
        "login-200",
        "1 login / 200: access_token and expiration_date",
        READERS + "test_a_grant_keeps_the_date_as_it_came",
        LOGIN + "test_a_login_gives_a_token_for_24_hours_in_istanbul_time",
    ),
    Rule(
        "login-401",
        "1 login / 401: Invalid credentials",
        CLIENT + "test_a_login_that_fails_says_how_and_is_not_repeated[served0-Unauthorized-invalid_credentials]",
        LOGIN + "test_a_wrong_credential_is_refused[rest_secret_key]",
    ),
    Rule(
        "login-422",
        "1 login / 422 when a credential is missing",
        CLIENT + "test_a_login_that_fails_says_how_and_is_not_repeated[served1-Refused-missing_field]",
        LOGIN + "test_a_login_without_a_credential_lacks_a_field[null]",
    ),
]

RESTAURANTS = [
    Rule(
        "restaurants-200",
        "2 restaurants / 200: an array of id and name",
        READERS + "test_restaurants",
        MENU + "test_a_branch_credential_reaches_one_restaurant",
    ),
    Rule(
        "restaurants-branch",
        "2 restaurants / one entry for branch-specific credentials",
        LISTS + "test_an_account_asks_only_about_its_own_restaurants",
        MENU + "test_a_branch_credential_reaches_one_restaurant",
    ),
    Rule(
        "restaurants-vendor",
        "2 restaurants / several for vendor-wide credentials",
        LISTS + "test_all_lists_are_there_after_one_reading",
        MENU + "test_a_vendor_wide_credential_reaches_several",
    ),
    Rule(
        "restaurants-401",
        "2 restaurants / 401: Invalid or expired access token",
        CLIENT + "test_after_a_401_one_login_and_one_repeat[restaurants]",
        LOGIN + "test_every_other_operation_wants_a_token_first[invented-get_restaurants]",
    ),
    Rule(
        "status-rest-id",
        "3 restaurant status / rest_id is a UUID and required",
        CLIENT + "test_an_empty_id_is_refused_here",
        MENU + "test_a_wrong_restaurant_is_an_error[no UUID-GET-/restaurants/status/get/]",
    ),
    Rule(
        "status-200",
        "3 restaurant status / 200: Open or Closed",
        LISTS + "test_the_status_of_each_restaurant_is_read",
        MENU + "test_a_restaurant_closes_and_opens",
    ),
    Rule(
        "status-token",
        "3 restaurant status / error: a bad token",
        CLIENT + "test_after_a_401_one_login_and_one_repeat[status]",
        LOGIN + "test_every_other_operation_wants_a_token_first[invented-get_restaurant_status]",
    ),
    Rule(
        "status-bad-id",
        "3 restaurant status / error: a bad id",
        ANSWERS + "test_a_known_text_decides_under_any_status[bad_url_id-403]",
        MENU + "test_a_wrong_restaurant_is_an_error[no UUID-GET-/restaurants/status/get/]",
    ),
    Rule(
        "status-unknown",
        "3 restaurant status / error: no such restaurant",
        LISTS + "test_a_status_that_cannot_be_read_harms_no_other",
        MENU + "test_a_wrong_restaurant_is_an_error[unknown-GET-/restaurants/status/get/]",
    ),
    *(
        Rule(
            f"{word}-{name}",
            f"4 and 5 {word} restaurant / {what}",
            client,
            sandbox,
        )
        for word in ("open", "close")
        for name, what, client, sandbox in (
            (
                "path",
                "rest_id in the path, no body, data OK",
                CLIENT + f"test_an_action_is_a_put[{word}_restaurant]",
                MENU + "test_a_restaurant_closes_and_opens",
            ),
            (
                "token",
                "error: a bad token",
                VERDICTS + f"test_a_401_is_met_by_one_login_and_one_repeat[{word}_restaurant]",
                LOGIN + f"test_every_other_operation_wants_a_token_first[empty-{word}_restaurant]",
            ),
            (
                "bad-id",
                "error: a bad id",
                ANSWERS + "test_a_known_text_decides_under_any_status[bad_url_id-200]",
                MENU + f"test_a_wrong_restaurant_is_an_error[no UUID-PUT-/restaurants/status/{word}/]",
            ),
            (
                "unknown",
                "error: no such restaurant",
                a_day("as the sandbox is"),
                MENU + f"test_a_wrong_restaurant_is_an_error[unknown-PUT-/restaurants/status/{word}/]",
            ),
        )
    ),
]

CURRENT = [
    Rule(
        "current-filter",
        "6 get-current / status_id, an optional integer, filters",
        BOTH + "test_the_filter_by_status",
        QUEUE + "test_the_filter_keeps_one_status",
    ),
    Rule(
        "current-200",
        "6 get-current / 200: an array of orders",
        LISTING + "test_a_document_is_the_text_that_was_received",
        QUEUE + "test_active_orders_are_listed_and_completed_ones_are_not[received]",
    ),
    Rule(
        "current-empty",
        "6 get-current / an empty array when there is nothing to return",
        LISTING + "test_an_empty_list_has_no_documents",
        QUEUE + "test_the_list_is_empty_when_nothing_was_ordered",
    ),
    Rule(
        "current-401",
        "6 get-current / 401: Invalid or expired access token",
        POLL + "test_after_a_401_the_next_slot_logs_in_and_polls",
        LOGIN + "test_every_other_operation_wants_a_token_first[invented-get_current]",
    ),
    Rule(
        "current-429",
        "6 get-current / 429 within the cooldown",
        POLL + "test_a_failed_poll_is_not_repeated_and_the_next_one_keeps_the_cooldown",
        QUEUE + "test_a_call_inside_the_cooldown_is_refused[at once]",
    ),
    *(
        Rule(
            f"current-order-{order}",
            f"6 get-current / order of the orders: not shown, it may be {order}",
            switched("list_order", order),
            QUEUE + test,
        )
        for order, test in {
            "oldest_first": "test_the_order_of_the_list_can_be_chosen[oldest]",
            "newest_first": "test_the_order_of_the_list_can_be_chosen[newest]",
            "shuffled": "test_a_shuffled_list_is_complete",
        }.items()
    ),
    Rule(
        "current-covers-all",
        "6 get-current / which restaurants it covers: not shown, it may be all",
        switched("list_covers", "all"),
        QUEUE + "test_a_list_holds_only_orders_within_reach",
    ),
    Rule(
        "current-covers-one",
        "6 get-current / which restaurants it covers: not shown, it may be one",
        switched("list_covers", "first"),
        QUEUE + "test_a_list_can_cover_the_first_restaurant_only",
    ),
]


def order_errors(number: int, word: str, ours: str, *, bad_id: bool = True) -> list[Rule]:
    """The errors that the order operations have in common. The client reads them alike, so one of its tests will do."""
    drained = ours if ours != "acknowledge" else "accept"
    own_401 = CLIENT + "test_after_a_401_one_login_and_one_repeat[acknowledge]"
    rules = [
        Rule(
            f"{word}-401",
            f"{number} {word} / 401: a bad token",
            own_401
            if ours == "acknowledge"
            else VERDICTS + f"test_a_401_is_met_by_one_login_and_one_repeat[{drained}]",
            LOGIN + f"test_every_other_operation_wants_a_token_first[invented-{ours}]",
        ),
        Rule(
            f"{word}-404",
            f"{number} {word} / 404: no such order",
            VERDICTS + "test_a_definite_no_is_final[404]",
            MOVES + f"test_an_unknown_order_is_not_found[{ours}]",
        ),
    ]
    if bad_id:
        rules.append(
            Rule(
                f"{word}-403",
                f"{number} {word} / 403: the path value is no UUID",
                VERDICTS + "test_a_definite_no_is_final[403]",
                MOVES + f"test_an_id_that_is_no_uuid_is_a_bad_address[no-uuid-{ours}]",
            )
        )
    return rules


ORDERS = [
    Rule(
        "success-effect",
        "7 success / marks the order as received for its current status",
        POLL + "test_an_acknowledgement_is_marked_with_its_status_and_told_in_the_story",
        QUEUE + "test_an_acknowledgement_marks_the_status_of_its_own_moment",
    ),
    Rule(
        "success-no-body",
        "7 success / order_id is the payment_key, no body, data OK",
        CLIENT + "test_an_action_is_a_put[acknowledge]",
        QUEUE + "test_a_second_acknowledgement_is_ok_without_effect",
    ),
    *order_errors(7, "success", "acknowledge"),
    Rule(
        "accept-content-type",
        "8 accept / header Content-Type: application/json",
        "tests/marketplace/test_http.py::test_a_request_arrives_as_it_was_meant",
        MOVES + "test_a_body_that_is_not_called_json_is_not_read",
    ),
    Rule(
        "accept-minutes",
        "8 accept / preparing_time is an integer of minutes",
        TABLES + "test_a_preparing_time_that_is_no_minutes_from_1_to_1440_is_refused",
        MOVES + "test_accepting_needs_a_positive_integer[{'preparing_time': '25'}]",
    ),
    Rule(
        "accept-effect",
        "8 accept / RECEIVED to CONFIRMED, data OK",
        VERDICTS + "test_each_action_is_carried_out[accept]",
        MOVES + "test_the_moves_are_those_of_the_specification[accept in 1]",
    ),
    Rule(
        "accept-422",
        "8 accept / 422: preparing_time is required",
        VERDICTS + "test_a_definite_no_is_final[422]",
        MOVES + "test_accepting_needs_a_positive_integer[{'preparing_time': None}]",
    ),
    *order_errors(8, "accept", "accept"),
    Rule(
        "ontheway-no-body",
        "9 ontheway / no body, data OK",
        CLIENT + "test_an_action_is_a_put[on_the_way]",
        MOVES + "test_the_moves_are_those_of_the_specification[on_the_way in 2]",
    ),
    Rule(
        "ontheway-courier",
        "9 ontheway / valid only for courier_type restaurant",
        VERDICTS + "test_on_the_way_is_sent_when_the_courier_may_be_ours",
        MOVES + "test_only_the_restaurants_own_couriers_are_marked_on_the_way[drone]",
    ),
    Rule(
        "ontheway-effect",
        "9 ontheway / CONFIRMED to IN_DELIVERY",
        VERDICTS + "test_each_action_is_carried_out[on_the_way]",
        MOVES + "test_the_moves_are_those_of_the_specification[on_the_way in 2]",
    ),
    *order_errors(9, "ontheway", "on_the_way"),
    Rule(
        "complete-no-body",
        "10 complete / no body, data OK",
        CLIENT + "test_an_action_is_a_put[complete]",
        MOVES + "test_the_moves_are_those_of_the_specification[complete in 16]",
    ),
    Rule(
        "complete-effect",
        "10 complete / IN_DELIVERY to COMPLETE_WITH_PAYMENT, for every payment type",
        VERDICTS + "test_an_order_is_completed_however_it_is_paid[Kupon]",
        MOVES + "test_every_payment_type_ends_in_complete_with_payment[Kupon]",
    ),
    *order_errors(10, "complete", "complete"),
    Rule(
        "cancel-reason-id",
        "11 cancel / reason_id is an integer from 1 to 8",
        TABLES + "test_a_reason_that_is_no_number_from_1_to_8_is_refused",
        MOVES + "test_cancelling_needs_a_reason_from_1_to_8[{'reason_id': '1'}-Invalid reason_id]",
    ),
    Rule(
        "cancel-effect",
        "11 cancel / CANCELED from any status but the two ends",
        VERDICTS + "test_an_order_can_be_cancelled_in_any_status_that_is_no_end[None-42]",
        MOVES + "test_the_moves_are_those_of_the_specification[cancel in 42]",
    ),
    Rule(
        "cancel-content-type",
        "11 cancel / header Content-Type: application/json, data OK",
        CLIENT + "test_an_action_is_a_put[cancel]",
        MOVES + "test_the_moves_are_those_of_the_specification[cancel in 1]",
    ),
    Rule(
        "cancel-422-missing",
        "11 cancel / 422: reason_id is required",
        TABLES + "test_a_missing_argument_is_refused",
        MOVES + "test_cancelling_needs_a_reason_from_1_to_8[{}-reason_id is required]",
    ),
    Rule(
        "cancel-422-invalid",
        "11 cancel / 422: Invalid reason_id",
        ANSWERS + "test_a_known_text_decides_under_any_status[missing_field-422]",
        MOVES + "test_cancelling_needs_a_reason_from_1_to_8[{'reason_id': 0}-Invalid reason_id]",
    ),
    *order_errors(11, "cancel", "cancel", bad_id=False),
]

REFERENCE = [
    Rule(
        "reasons-200",
        "12 cancel-reasons / 200: an array of the eight",
        BOTH + "test_reference_lists",
        MENU + "test_the_cancel_reasons_are_the_eight",
    ),
    Rule(
        "reasons-401",
        "12 cancel-reasons / 401: a bad token",
        CLIENT + "test_after_a_401_one_login_and_one_repeat[reasons]",
        LOGIN + "test_every_other_operation_wants_a_token_first[missing-get_cancel_reasons]",
    ),
    Rule(
        "variables-200",
        "13 variables / 200: an object of two lists",
        READERS + "test_variables_with_another_list_are_no_answer",
        MENU + "test_the_variables_are_those_of_the_tables[True-Kredi Kart\\u0131 (pre-paid)]",
    ),
    Rule(
        "variables-401",
        "13 variables / 401: a bad token",
        CLIENT + "test_after_a_401_one_login_and_one_repeat[variables]",
        LOGIN + "test_every_other_operation_wants_a_token_first[missing-get_variables]",
    ),
]

FOODS = [
    *(
        Rule(f"{word}-{name}", f"14 and 15 {word} / {what}", client, sandbox)
        for word, ours in {"status-passive": "deactivate_food", "status-active": "activate_food"}.items()
        for name, what, client, sandbox in (
            (
                "path",
                "food_id in the path is an integer, no body, data OK",
                TABLES + "test_a_food_that_is_no_number_is_refused",
                MENU + f"test_a_wrong_food_is_an_error[1.5-403-URL hatal\\u0131-/foods/{word}/]",
            ),
            (
                "token",
                "error: a bad token",
                VERDICTS + f"test_a_401_is_met_by_one_login_and_one_repeat[{ours}]",
                LOGIN + f"test_every_other_operation_wants_a_token_first[missing-{ours}]",
            ),
            (
                "bad-id",
                "error: a bad id",
                VERDICTS + "test_a_definite_no_is_final[403]",
                MENU + f"test_a_wrong_food_is_an_error[abc-403-URL hatal\\u0131-/foods/{word}/]",
            ),
            (
                "unknown",
                "error: no such food",
                a_day("as the sandbox is"),
                MENU + f"test_a_wrong_food_is_an_error[999999-404-\\xfcr\\xfcn bulunamad\\u0131-/foods/{word}/]",
            ),
        )
    ),
    Rule(
        "menu-path",
        "Menu listing / GET foods/get-foods exists and is rate limited",
        DAEMON + "test_the_menu_is_never_read",
        MENU + "test_the_menu_has_its_own_limit",
    ),
    Rule(
        "menu-request",
        "Menu listing / its request shape: not shown",
        CLIENT + "test_the_client_has_the_operations_it_needs_and_no_other",
        MENU + "test_the_menu_lists_foods_with_their_status",
    ),
    *(
        Rule(
            f"menu-shape-{shape}",
            f"Menu listing / its response shape: not shown, it may be {shape}",
            CLIENT + "test_the_client_has_the_operations_it_needs_and_no_other",
            MENU + f"test_the_shape_of_the_menu_can_be_chosen[{shape}-<lambda>]",
        )
        for shape in ("flat", "by_category", "wrapped")
    ),
    Rule(
        "menu-unasked",
        "Menu listing / rate limited, so that nobody asks who need not",
        DAEMON + "test_the_menu_is_never_read",
        MENU + "test_the_menu_has_its_own_limit",
    ),
]

RULES = [*ALL, *PATHS, *LOGINS, *RESTAURANTS, *CURRENT, *ORDERS, *REFERENCE, *FOODS]
