"""The board's frequent queries read no large table from end to end."""

import pytest
from tests.store.samples import NOW
from tests.store.test_plans import SOME, Work, plans, years

from orderbridge_board import queries

__all__ = ["years"]

WORK: dict[str, Work] = {
    "whether something is different": queries.version,
    "its orders": lambda tx: queries.orders_shown(tx, NOW),
    "their rows": lambda tx: queries.rows_of(tx, SOME),
    "whether nothing is open": queries.is_closed,
    "what was switched": lambda tx: queries.newest_toggles(tx, NOW),
    "the usual minutes": queries.usual_minutes,
    "what is silenced": lambda tx: queries.silenced_at(tx, NOW),
    "what is forgotten": lambda tx: queries.forget_silenced(tx, NOW),
    "what was finished": lambda tx: queries.orders_finished(tx, SOME, NOW),
}


@pytest.mark.parametrize("name", WORK)
def test_no_query_scans_a_big_table(name, years):
    with plans(years) as found, years.engine.connect() as connection, connection.begin() as transaction:
        WORK[name](connection)
        transaction.rollback()
    assert (bool(found), [(statement, scans) for statement, scans in found if scans]) == (True, [])
