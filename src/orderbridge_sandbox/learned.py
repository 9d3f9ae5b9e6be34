"""Sets the options to what a daemon has observed, from the output of `orderbridge learned --json`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from . import rules
from .options import Completable, Coverage, Disallowed, ListOrder, MenuShape
from .switches import BadOption

_SHAPES: Final = {  # the path to the first food
    "[]": MenuShape.FLAT,
    ".foods[]": MenuShape.WRAPPED,
    "[].foods[]": MenuShape.BY_CATEGORY,
    "[restaurant].foods[]": MenuShape.BY_RESTAURANT,
    "{}": MenuShape.BY_ID,
}


def settings_learned(path: Path) -> dict[str, Any]:
    """Return the options that follow from the file's counts. The others keep their defaults. Raises BadOption."""
    seen: dict[str, dict[str, int]] = {}
    try:
        for row in json.loads(path.read_text("utf-8")):
            seen.setdefault(row["point"], {})[row["value"]] = row["times"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadOption(f"{path}: not the output of `orderbridge learned --json`: {type(error).__name__}") from error
    settings = _of_lists(seen) | _of_refusals(seen.get("refusal", {}))
    if "by_a_new_login" in seen.get("token_ended", {}):
        settings["new_login_ends_old_token"] = True
    completed = seen.get("complete_from_confirmed", {})
    if "own_courier ok" in completed:
        settings["complete_from_confirmed"] = Completable.ALL
    elif "other_courier ok" in completed:
        settings["complete_from_confirmed"] = Completable.WITHOUT_OWN_COURIER
    if refused := [int(value) for value in seen.get("preparing_time", {}) if value.isdigit() and int(value) > 1]:
        settings["longest_preparing_time"] = min(refused) - 1
    return settings


def _of_lists(seen: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    statuses = {int(value) for value in seen.get("status_id", {}) if value.isdigit()}
    if rules.CANCELED in statuses:
        settings["cancelled_are_delivered"] = True
    if others := statuses - set(rules.STATUS_TEXTS):
        settings["needs_payment_status_id"] = min(others)
    if "capitals" in seen.get("ids", {}):
        settings["ids_in_capitals"] = True
    if "all" in seen.get("list_covers", {}):
        settings["list_covers"] = Coverage.ALL
    if orders := set(seen.get("list_order", {})) & set(ListOrder):
        settings["list_order"] = ListOrder(orders.pop()) if len(orders) == 1 else ListOrder.SHUFFLED
    if lengths := {int(value): times for value, times in seen.get("list_length", {}).items() if value.isdigit()}:
        settings["list_limit"] = max(lengths)
    if shapes := {value: times for value, times in seen.get("menu_shape", {}).items() if value in _SHAPES}:
        settings["menu_shape"] = _SHAPES[max(shapes, key=lambda shape: shapes[shape])]
    names = {name for name in rules.PAYMENT_METHODS.values() if name.endswith(rules.PREPAID_SUFFIX)}
    if paid := set(seen.get("payment_method", {})) & (
        names | {name.removesuffix(rules.PREPAID_SUFFIX) for name in names}
    ):
        settings["prepaid_suffix"] = bool(paid & names)
    return settings


def _of_refusals(refusals: Mapping[str, int]) -> dict[str, Any]:
    """Refusals are `path status code`."""
    settings: dict[str, Any] = {}
    for refusal in sorted(refusals, key=lambda text: refusals[text]):  # the most frequent one counts
        path, status, code = (*refusal.split(" ", 2), "", "")[:3]
        if code == "unauthorized" and status != "401":
            settings["token_errors_stay_401"] = False
        elif code == "refused" and path.startswith("/orders/"):
            settings |= {"disallowed": Disallowed.REFUSED, "disallowed_status": int(status)}
        elif code == "order_not_found" and path == "/orders/complete":
            settings["complete_error_status"] = int(status)
        elif code == "restaurant_not_found":
            settings["restaurant_error_status"] = int(status)
        elif code == "food_not_found":
            settings["food_error_status"] = int(status)
    known = {"/orders/accept", "/orders/ontheway", "/orders/complete", "/orders/cancel"}
    not_found = {text for text in refusals if text.split(" ")[0] in known and " order_not_found" in text}
    if not_found and "disallowed" not in settings:  # the daemon acts only on orders that were listed
        settings["disallowed"] = Disallowed.NOT_FOUND
    return settings
