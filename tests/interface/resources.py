"""Conventions, what the service does, resources and their fields."""

from tests.interface.rule import (
    ANSWERS,
    BOTH,
    CLIENT,
    DAEMON,
    HTTP,
    LISTS,
    LOGIN,
    MENU,
    MOVES,
    MUTILATED,
    ORDER,
    PAYMENT,
    POLL,
    QUEUE,
    READERS,
    SERVER,
    SWEEP,
    TOKENS,
    VERDICTS,
    WORLD,
    Rule,
    made,
    read,
    switched,
)

CONVENTIONS = [
    Rule(
        "relative-paths",
        "Conventions / every path is relative to base_url",
        CLIENT + "test_an_action_is_a_put[accept]",
        SERVER + "test_the_base_url_can_have_a_path",
    ),
    Rule(
        "requests-are-json",
        "Conventions / requests are JSON",
        HTTP + "test_a_request_arrives_as_it_was_meant",
        MOVES + "test_a_body_that_is_not_called_json_is_not_read",
    ),
    Rule(
        "responses-are-json",
        "Conventions / responses are JSON",
        ANSWERS + "test_a_body_without_the_envelope_is_nobodys_word[page-200]",
        QUEUE + "test_the_body_is_utf_8_with_amounts_of_two_decimals",
    ),
    Rule(
        "success-envelope",
        "Conventions / success envelope: status true and data",
        ANSWERS + "test_success_gives_its_data[ok]",
        MENU + "test_a_restaurant_closes_and_opens",
    ),
    Rule(
        "error-envelope",
        "Conventions / error envelope: status false and error",
        ANSWERS + "test_a_known_text_decides_under_any_status[order_not_found-404]",
        MOVES + "test_an_unknown_order_is_not_found[accept]",
    ),
    Rule(
        "error-message-optional",
        "Conventions / message is optional in an error",
        CLIENT + "test_a_login_that_fails_says_how_and_is_not_repeated[served1-Refused-missing_field]",
        LOGIN + "test_a_login_without_a_credential_lacks_a_field[nothing]",
    ),
    Rule(
        "https-only",
        "Conventions / all calls must use HTTPS",
        HTTP + "test_only_https",
        SERVER + "test_plain_http_is_refused",
    ),
]

PURPOSE = [
    Rule(
        "secrets-give-a-token",
        "What the service does / 1: an application secret and a restaurant secret give an access token",
        CLIENT + "test_a_login_carries_no_token",
        LOGIN + "test_a_login_gives_a_token_for_24_hours_in_istanbul_time",
    ),
    Rule(
        "restaurants-in-reach",
        "What the service does / 2: the restaurants that the credentials can reach are listed",
        LISTS + "test_all_lists_are_there_after_one_reading",
        MENU + "test_a_vendor_wide_credential_reaches_several",
    ),
    Rule(
        "poll-and-acknowledge",
        "What the service does / 3: active orders are polled, and acknowledged so that they stop repeating",
        POLL + "test_every_order_of_a_long_list_comes_in_and_is_acknowledged_once",
        QUEUE + "test_an_order_repeats_until_it_is_acknowledged",
    ),
    Rule(
        "lifecycle",
        "What the service does / 4: accept, on the way, complete, or cancel",
        BOTH + "test_the_life_of_an_order",
        MOVES + "test_the_table_knows_no_other_move",
    ),
    Rule(
        "open-close-read",
        "What the service does / 5: a restaurant is opened or closed and its status read",
        BOTH + "test_restaurants",
        MENU + "test_a_restaurant_closes_and_opens",
    ),
    Rule(
        "foods-on-off",
        "What the service does / 6: single menu items are activated or deactivated",
        BOTH + "test_foods",
        MENU + "test_an_inactive_food_is_not_ordered_and_old_orders_keep_it",
    ),
    Rule(
        "menu-listing-exists",
        "What the service does / 6: a menu listing operation exists",
        BOTH + "test_foods",
        MENU + "test_the_menu_lists_foods_with_their_status",
    ),
    Rule(
        "reference-lists",
        "What the service does / 7: reasons, payment and shipping methods are read",
        DAEMON + "test_the_reference_lists_are_read_at_the_start",
        MENU + "test_the_cancel_reasons_are_the_eight",
    ),
    Rule(
        "key-addresses-the-order",
        "What the service does / every order operation addresses the order by its payment_key",
        VERDICTS + "test_an_order_is_addressed_by_its_key_and_never_by_its_number",
        MOVES + "test_an_id_in_upper_case_finds_the_order",
    ),
    Rule(
        "number-not-in-paths",
        "What the service does / the integer id must not be used in paths",
        VERDICTS + "test_an_order_is_addressed_by_its_key_and_never_by_its_number",
        MOVES + "test_an_id_that_is_no_uuid_is_a_bad_address[100001-accept]",
    ),
]

TOKEN = [
    Rule(
        "token-in-header",
        "Access token / access_token is sent back in the Access-Token header",
        HTTP + "test_a_request_arrives_as_it_was_meant",
        LOGIN + "test_every_other_operation_wants_a_token_first[missing-get_current]",
    ),
    Rule(
        "expiration-format",
        "Access token / expiration_date is YYYY-MM-DD HH:MM:SS",
        TOKENS + "test_a_readable_time_within_the_day_is_taken_as_it_is",
        LOGIN + "test_a_login_gives_a_token_for_24_hours_in_istanbul_time",
    ),
    Rule(
        "expiration-zone",
        "Access token / the time zone of expiration_date: not shown",
        switched("expiration_timezone", "Pacific/Kiritimati"),
        LOGIN + "test_the_expiry_can_be_told_in_a_wrong_zone",
    ),
    Rule(
        "token-24-hours-from-issue",
        "Access token / validity is 24 hours from issue",
        TOKENS + "test_the_service_is_believed_up_to_a_day[a second more than a day]",
        LOGIN + "test_a_token_ends_after_24_hours",
    ),
]

RESTAURANT = [
    Rule(
        "restaurant-id",
        "Restaurant / id is a UUID, used as rest_id in paths",
        CLIENT + "test_an_action_is_a_put[open_restaurant]",
        MENU + "test_a_wrong_restaurant_is_an_error[no UUID-GET-/restaurants/status/get/]",
    ),
    Rule(
        "restaurant-name",
        "Restaurant / name is the branch name",
        LISTS + "test_a_list_without_what_was_known_is_asked_again_before_it_is_believed",
        MENU + "test_a_branch_credential_reaches_one_restaurant",
    ),
    Rule(
        "restaurant-status-words",
        "Restaurant / its status is the string Open or Closed",
        READERS + "test_the_status_of_a_restaurant",
        MENU + "test_a_restaurant_closes_and_opens",
    ),
]

ORDER_FIELDS = [
    Rule("order-id", "Order / id: integer, display only", read("id"), made("id")),
    Rule(
        "order-payment-key",
        "Order / payment_key: UUID, the identifier for all operations",
        MUTILATED + "test_an_order_without_a_usable_key_is_set_aside_whole_and_comes_in_when_it_has_one[no uuid]",
        WORLD + "test_an_id_that_is_a_uuid_is_one[payment_key]",
    ),
    Rule(
        "order-status-id",
        "Order / status_id: integer",
        MUTILATED + "test_a_mutilated_status_is_an_unknown_one[text]",
        made("status_id"),
    ),
    Rule(
        "order-status-text",
        "Order / status_text: text in Turkish",
        POLL + "test_the_status_is_told_in_the_services_own_words",
        QUEUE + "test_a_change_of_status_brings_an_acknowledged_order_back",
    ),
    Rule(
        "order-shipping-method",
        "Order / shipping_method: delivery or pickup",
        read("shipping_method"),
        WORLD + "test_the_orders_are_of_every_kind",
    ),
    Rule(
        "order-payment-method",
        "Order / payment_method: a display name, for example of the payment method list",
        MUTILATED + "test_an_unknown_way_of_paying_has_no_amount_to_collect",
        WORLD + "test_the_orders_are_of_every_kind",
    ),
    Rule("order-note", "Order / note: may be empty", read("note"), made("note")),
    Rule(
        "order-total",
        "Order / total: the final amount to collect, after discounts",
        ORDER + "test_what_is_collected_at_the_door[Nakit-CASH-due0]",
        WORLD + "test_the_amounts_agree",
    ),
    Rule(
        "order-discount",
        "Order / discount: the total discount, a string and not a number",
        ORDER + 'test_amounts["12.50"]',
        made("discount"),
    ),
    Rule(
        "order-date",
        "Order / date: YYYY-MM-DD HH:MM:SS",
        read("date"),
        WORLD + "test_an_order_has_the_fields_of_the_specification",
    ),
    Rule(
        "order-restaurant-id",
        "Order / restaurant_id: UUID of the branch that received the order",
        read("restaurant_id"),
        WORLD + "test_an_id_that_is_a_uuid_is_one[restaurant_id]",
    ),
    Rule(
        "order-restaurant-name",
        "Order / restaurant_name: text",
        read("restaurant_name"),
        made("restaurant_name"),
    ),
    Rule(
        "order-courier-type",
        "Order / courier_type: restaurant, come_get or platform_courier",
        VERDICTS + "test_what_can_never_be_right_is_refused_unsent[platform courier]",
        WORLD + "test_the_orders_are_of_every_kind",
    ),
    Rule("order-courier-fee", "Order / courier_fee: number", read("courier_fee"), made("courier_fee")),
    Rule(
        "order-scheduled-date",
        "Order / scheduled_date: an empty string when the order is not scheduled",
        SWEEP + "test_a_scheduled_order_is_waited_for_until_a_day_after_its_time",
        WORLD + "test_the_orders_are_of_every_kind",
    ),
    Rule("order-tip", "Order / order_tip: number", read("order_tip"), made("order_tip")),
    Rule("order-customer", "Order / customer: an object", read("customer"), made("customer")),
    Rule("order-customer-name", "Order / customer.name: text", read("customer.name"), made("customer.name")),
    Rule("order-customer-phone", "Order / customer.phone: text", read("customer.phone"), made("customer.phone")),
    Rule("order-address", "Order / address: an object", read("address"), made("address")),
    Rule("order-foods", "Order / foods: an array", read("foods"), made("foods")),
    *(
        Rule(f"address-{name}", f"Address / {name}: text", read(f"address.{name}"), made(f"address.{name}"))
        for name in (
            "address",
            "description",
            "apartment_no",
            "building_no",
            "neighborhood_name",
            "district_name",
            "city_name",
        )
    ),
]

ITEM_FIELDS = [
    Rule(
        "item-id",
        "Order item / id: UUID, the order item identifier",
        POLL + "test_items_and_options_come_in_whole",
        WORLD + "test_an_id_that_is_a_uuid_is_one[foods.id]",
    ),
    Rule(
        "item-food-id",
        "Order item / food_id: integer of the same id space as in food paths",
        VERDICTS + "test_an_inactive_food_leaves_the_orders_alone_that_have_it",
        MENU + "test_an_inactive_food_is_not_ordered_and_old_orders_keep_it",
    ),
    Rule("item-name", "Order item / name: text", read("foods.name"), made("foods.name")),
    Rule("item-note", "Order item / note: text", read("foods.note"), made("foods.note")),
    Rule("item-price", "Order item / price: number, of one", read("foods.price"), made("foods.price")),
    Rule("item-quantity", "Order item / quantity: integer", read("foods.quantity"), made("foods.quantity")),
    Rule(
        "item-total",
        "Order item / total: price x quantity plus modifiers",
        POLL + "test_items_and_options_come_in_whole",
        WORLD + "test_the_amounts_agree",
    ),
    Rule(
        "item-options",
        "Order item / option_groups: an array of the selected modifiers",
        read("foods.option_groups"),
        made("foods.option_groups"),
    ),
    *(
        Rule(
            f"group-{name}",
            f"Option group / {name}: {kind}",
            read(f"foods.option_groups.{name}"),
            made(f"foods.option_groups.{name}"),
        )
        for name, kind in {"id": "integer", "name": "text", "type": "text", "operation": "text"}.items()
    ),
    Rule(
        "group-options",
        "Option group / options: an object",
        MUTILATED + "test_options_may_come_as_a_list",
        made("foods.option_groups.options"),
    ),
    *(
        Rule(
            f"option-{name}",
            f"Option group / options.{name}: {kind}",
            read(f"foods.option_groups.options.{name}"),
            made(f"foods.option_groups.options.{name}"),
        )
        for name, kind in {"id": "integer", "name": "text", "price": "number"}.items()
    ),
    Rule(
        "group-type-values",
        "Option group / values of type beyond multi: not shown",
        MUTILATED + "test_another_kind_of_option_is_kept_as_it_came[type-single]",
        WORLD + "test_an_option_may_be_of_any_other_kind",
    ),
    Rule(
        "group-operation-values",
        "Option group / values of operation beyond +: not shown",
        MUTILATED + "test_another_kind_of_option_is_kept_as_it_came[operation--]",
        WORLD + "test_an_option_may_be_of_any_other_kind",
    ),
    Rule(
        "group-sample",
        "Option group / multi and + appear in a sample",
        ORDER + "test_an_order_as_documented_is_read_whole",
        WORLD + "test_a_sample_option_is_multi_and_plus",
    ),
    Rule(
        "menu-item-fields",
        "Menu item record / its fields beyond food_id, status, a name and a category: not shown",
        CLIENT + "test_the_client_has_the_operations_it_needs_and_no_other",
        MENU + "test_the_menu_lists_foods_with_their_status",
    ),
]

REFERENCE = [
    *(
        Rule(
            f"reason-{number}",
            f"Cancel reason / {number}: {meaning}",
            VERDICTS + f"test_each_reason_of_the_service_cancels[{number}]",
            MOVES + f"test_every_reason_cancels[{number}]",
        )
        for number, meaning in enumerate(
            (
                "product out of stock",
                "address not found",
                "due to congestion",
                "customer canceled",
                "technical issue",
                "delivery address too far",
                "payment problem",
                "other",
            ),
            start=1,
        )
    ),
    Rule(
        "reason-texts",
        "Cancel reason / id is an integer, reason a text in Turkish",
        READERS + "test_cancel_reasons",
        MENU + "test_the_cancel_reasons_are_the_eight",
    ),
    Rule(
        "method-entries",
        "Payment and shipping methods / each entry is key and name",
        READERS + "test_variables",
        MENU + "test_the_variables_are_those_of_the_tables[True-Kredi Kart\\u0131 (pre-paid)]",
    ),
    Rule(
        "method-cash",
        "Payment and shipping methods / CASH is Nakit",
        ORDER + "test_what_is_collected_at_the_door[Nakit-CASH-due0]",
        MENU + "test_the_variables_are_those_of_the_tables[True-Kredi Kart\\u0131 (pre-paid)]",
    ),
    Rule(
        "method-credit-card",
        "Payment and shipping methods / CREDIT_CARD is pre-paid",
        PAYMENT + "test_the_amount_due[CREDIT_CARD-due1]",
        MENU + "test_the_variables_are_those_of_the_tables[True-Kredi Kart\\u0131 (pre-paid)]",
    ),
    Rule(
        "method-debit-card",
        "Payment and shipping methods / DEBIT_CARD is pre-paid",
        PAYMENT + "test_the_amount_due[DEBIT_CARD-due2]",
        MENU + "test_the_variables_are_those_of_the_tables[True-Kredi Kart\\u0131 (pre-paid)]",
    ),
    Rule(
        "method-remark",
        "Payment and shipping methods / whether (pre-paid) belongs to the name: not shown",
        switched("prepaid_suffix", value=False),
        MENU + "test_the_variables_are_those_of_the_tables[False-Kredi Kart\\u0131]",
    ),
    Rule(
        "method-shipping",
        "Payment and shipping methods / delivery is Teslimat, pickup is Gel Al",
        LISTS + "test_all_lists_are_there_after_one_reading",
        MENU + "test_the_variables_are_those_of_the_tables[True-Kredi Kart\\u0131 (pre-paid)]",
    ),
]

RULES = [*CONVENTIONS, *PURPOSE, *TOKEN, *RESTAURANT, *ORDER_FIELDS, *ITEM_FIELDS, *REFERENCE]
