"""Payment methods by their display names. A wrong guess means that money is not collected."""

from decimal import Decimal

import pytest
from tests.marketplace.samples import CODES

from orderbridge.marketplace.documents import amount_due, payment_code

LOOSE = {"Kart (kapıda)": "DOOR", "Kart (pre-paid)": "CREDIT_CARD", "Çek (x)": "A", "Çek (y)": "A", "Kag\u0306ıt": "B"}


NAMES = {
    "CASH": ("Nakit", " Nakit ", "CASH", "Nakit (kapıda)", "nakit", "NAK\u0130T "),
    "CREDIT_CARD": ("Kredi Kartı (pre-paid)", "Kredi Kartı", "KREDI  KARTI", "credit_card"),
    "DEBIT_CARD": ("DEBIT_CARD",),
    None: ("Kredi Kartı".replace("ı", "i\u0307"), "Kredi Kartı (kapıda)", "Yemek Kartı", "", None),
}


@pytest.mark.parametrize("name, code", [(name, code) for code, names in NAMES.items() for name in names])
def test_a_name_counts_with_or_without_its_remark_but_not_with_another(name: str | None, code: str | None) -> None:
    assert payment_code(name, CODES) == code


@pytest.mark.parametrize(
    "name, code",
    [
        *[("Kart", None), ("Kart (kapıda)", "DOOR"), ("Kart (pre-paid)", "CREDIT_CARD"), ("DOOR", "DOOR")],
        *[("Çek", "A"), ("C\u0327ek", "A"), ("Kağıt", "B"), ("Kag\u0306ıt", "B"), ("Nakit", None)],
    ],
)
def test_a_bare_name_of_two_methods_is_neither_and_a_decomposed_one_is_the_same(name: str, code: str | None) -> None:
    assert payment_code(name, LOOSE) == code


@pytest.mark.interface("Payment and shipping methods")
@pytest.mark.parametrize(
    "code, due",
    [("CASH", Decimal(7)), ("CREDIT_CARD", Decimal(0)), ("DEBIT_CARD", Decimal(0)), ("TRANSFER", None), (None, None)],
)
def test_the_amount_due(code: str | None, due: Decimal | None) -> None:
    assert amount_due(Decimal(7), code) == due
