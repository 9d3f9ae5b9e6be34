"""The tables of docs/interface.md: statuses, transitions, reference lists, error texts.

They are constants; options.py has what docs/interface.md leaves open.
"""

import re
from enum import StrEnum
from typing import Final

RECEIVED: Final = 1
CONFIRMED: Final = 2
COMPLETE_WITH_PAYMENT: Final = 5
CANCELED: Final = 6
IN_DELIVERY: Final = 16

STATUS_TEXTS: Final = {
    RECEIVED: "Yeni Sipariş",
    CONFIRMED: "Onaylandı",
    COMPLETE_WITH_PAYMENT: "Tamamlandı",
    CANCELED: "İptal Edildi",
    IN_DELIVERY: "Restoran Kuryeye Verildi",  # the only text that the interface's description gives
}
NEEDS_PAYMENT_TEXT: Final = "Ödeme Bekleniyor"


class Operation(StrEnum):
    """The operations' names, as the ledger and the faults use them."""

    LOGIN = "login"
    GET_RESTAURANTS = "get_restaurants"
    GET_RESTAURANT_STATUS = "get_restaurant_status"
    OPEN_RESTAURANT = "open_restaurant"
    CLOSE_RESTAURANT = "close_restaurant"
    GET_CURRENT = "get_current"
    ACKNOWLEDGE = "acknowledge"
    ACCEPT = "accept"
    ON_THE_WAY = "on_the_way"
    COMPLETE = "complete"
    CANCEL = "cancel"
    GET_CANCEL_REASONS = "get_cancel_reasons"
    GET_VARIABLES = "get_variables"
    DEACTIVATE_FOOD = "deactivate_food"
    ACTIVATE_FOOD = "activate_food"
    GET_FOODS = "get_foods"


# "Endpoints", and the menu listing after them.
ENDPOINTS: Final[tuple[tuple[Operation, str, str], ...]] = (
    (Operation.LOGIN, "POST", "/auth/login"),
    (Operation.GET_RESTAURANTS, "GET", "/restaurants/get"),
    (Operation.GET_RESTAURANT_STATUS, "GET", "/restaurants/status/get/{id}"),
    (Operation.OPEN_RESTAURANT, "PUT", "/restaurants/status/open/{id}"),
    (Operation.CLOSE_RESTAURANT, "PUT", "/restaurants/status/close/{id}"),
    (Operation.GET_CURRENT, "GET", "/orders/get-current"),
    (Operation.ACKNOWLEDGE, "PUT", "/orders/success/{id}"),
    (Operation.ACCEPT, "PUT", "/orders/accept/{id}"),
    (Operation.ON_THE_WAY, "PUT", "/orders/ontheway/{id}"),
    (Operation.COMPLETE, "PUT", "/orders/complete/{id}"),
    (Operation.CANCEL, "PUT", "/orders/cancel/{id}"),
    (Operation.GET_CANCEL_REASONS, "GET", "/orders/cancel-reasons"),
    (Operation.GET_VARIABLES, "GET", "/orders/variables"),
    (Operation.DEACTIVATE_FOOD, "PUT", "/foods/status-passive/{id}"),
    (Operation.ACTIVATE_FOOD, "PUT", "/foods/status-active/{id}"),
    (Operation.GET_FOODS, "GET", "/foods/get-foods"),
)

# In the table: every id that docs/interface.md does not give, COMPLETE_NEEDS_PAYMENT and unknown ones.
OTHER: Final = 0


# "Order transitions". What is not in the table is not allowed.
TRANSITIONS: Final[dict[tuple[int, Operation], int]] = {
    (RECEIVED, Operation.ACCEPT): CONFIRMED,
    (CONFIRMED, Operation.ON_THE_WAY): IN_DELIVERY,
    (IN_DELIVERY, Operation.COMPLETE): COMPLETE_WITH_PAYMENT,
    (RECEIVED, Operation.CANCEL): CANCELED,
    (CONFIRMED, Operation.CANCEL): CANCELED,
    (IN_DELIVERY, Operation.CANCEL): CANCELED,
    (OTHER, Operation.CANCEL): CANCELED,
}


def next_status(status_id: int, operation: Operation) -> int | None:
    """Return the status after the operation; None if it is not allowed in this status."""
    return TRANSITIONS.get((status_id if status_id in STATUS_TEXTS else OTHER, operation))


RESTAURANT_COURIER: Final = "restaurant"  # the only courier_type for which PUT orders/ontheway is valid

CANCEL_REASONS: Final = {
    1: "Ürün tükendi",
    2: "Adres bulunamıyor",
    3: "Yoğunluk nedeniyle",
    4: "Müşteri iptal etti",
    5: "Teknik sorun",
    6: "Çok uzak teslimat adresi",
    7: "Ödeme problemi",
    8: "Diğer",
}
CUSTOMER_CANCELED: Final = 4

PREPAID_SUFFIX: Final = " (pre-paid)"
PAYMENT_METHODS: Final = {
    "CASH": "Nakit",
    "CREDIT_CARD": "Kredi Kartı" + PREPAID_SUFFIX,
    "DEBIT_CARD": "Banka Kartı" + PREPAID_SUFFIX,
}
SHIPPING_METHODS: Final = {"delivery": "Teslimat", "pickup": "Gel Al"}

UNAUTHORIZED: Final = "yetkisiz erişim"
BAD_URL: Final = "URL hatalı"
ORDER_NOT_FOUND: Final = "sipariş bulunamadı"
FOOD_NOT_FOUND: Final = "ürün bulunamadı"
RESTAURANT_NOT_FOUND: Final = "restoran bulunamadı"
MISSING_FIELD: Final = "eksik alan"
TOO_MANY_REQUESTS: Final = "çok fazla istek"

INVALID_CREDENTIALS: Final = "Invalid credentials"
EXPIRED_OR_INVALID: Final = "Token expired or invalid"
INVALID_OR_EXPIRED: Final = "Invalid or expired access token"
PREPARING_TIME_REQUIRED: Final = "preparing_time is required"
REASON_ID_REQUIRED: Final = "reason_id is required"
INVALID_REASON_ID: Final = "Invalid reason_id"


def cooldown_message(seconds: float) -> str:
    """Return the Turkish text that asks to wait ("Errors", 429)."""
    return f"Lütfen {seconds:g} saniye bekleyip tekrar deneyin."


TIME_FORMAT: Final = "%Y-%m-%d %H:%M:%S"

UUID_PATTERN: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
INTEGER_PATTERN: Final = re.compile(r"-?[0-9]{1,18}", re.ASCII)
