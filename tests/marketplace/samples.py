"""Orders as docs/interface.md shows them, and bodies made of them."""

import json
import sys
from collections.abc import Callable
from time import process_time
from typing import Any

KEY = "0b7e1c52-6f0d-4c1e-9a55-3d2f8e6a7b10"
OTHER_KEY = "5f3c2a10-7d4e-4b8a-8c21-9e0f1a2b3c4d"
CODES = {"Nakit": "CASH", "Kredi Kartı (pre-paid)": "CREDIT_CARD", "Banka Kartı (pre-paid)": "DEBIT_CARD"}


def food(**changes: Any) -> dict[str, Any]:
    return {
        "id": "9a3e6f7c-2b1d-4e5f-8a9b-0c1d2e3f4a5b",
        "food_id": 55, "name": "Adana Dürüm", "note": "acısız", "price": 110.25, "quantity": 2, "total": 235.5,
        "option_groups": [
            {
                "id": 3, "name": "İçecek", "type": "multi", "operation": "+",
                "options": {"id": 7, "name": "Ayran", "price": 15},
            }
        ],
    } | changes  # fmt: skip


def order(**changes: Any) -> dict[str, Any]:
    return {
        "id": 100234, "payment_key": KEY, "status_id": 1, "status_text": "Onay Bekliyor",
        "shipping_method": "delivery", "payment_method": "Nakit", "note": "Zile basmayın", "total": 230.5,
        "discount": "10.00", "date": "2026-11-21 12:30:00",
        "restaurant_id": "77c1f0de-54a3-4b0e-9d7c-2f6b1a8e4c33",
        "restaurant_name": "Kadıköy", "courier_type": "restaurant", "courier_fee": 0, "scheduled_date": "",
        "order_tip": 5,
        "customer": {"name": "Ayşe Yılmaz", "phone": "+905550001122"},
        "address": {
            "address": "Moda Caddesi", "description": "mavi kapı", "apartment_no": "4", "building_no": "12",
            "neighborhood_name": "Caferağa", "district_name": "Kadıköy", "city_name": "İstanbul",
        },
        "foods": [food()],
    } | changes  # fmt: skip


def text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def listing(*elements: str) -> bytes:
    """The body of get-current with these elements, each given as text."""
    return ('{"status": true, "data": [' + ", ".join(elements) + "]}").encode("utf-8", "surrogatepass")


def success(data: Any) -> bytes:
    return text({"status": True, "data": data}).encode()


def failure(error: str, message: str | None = None) -> bytes:
    return text({"status": False, "error": error} | ({} if message is None else {"message": message})).encode()


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor seconds of `work`, without those of coverage."""
    tracer = sys.gettrace()
    sys.settrace(None)
    began = process_time()
    try:
        work()
        return process_time() - began
    finally:
        sys.settrace(tracer)
