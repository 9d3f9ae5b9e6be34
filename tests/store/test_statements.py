"""A statement that is made once is compiled once: SQLAlchemy keeps what it can name."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from sqlalchemy import CompoundSelect, Delete, Insert, Select, Update
from sqlalchemy.sql.expression import ClauseElement

from orderbridge import store
from orderbridge.store.tables import changed, contents_ended_utc

STATEMENTS = (CompoundSelect, Delete, Insert, Select, Update)


def _made_once() -> Iterator[tuple[str, ClauseElement]]:
    """Each statement that stands in a module of the store."""
    for found in pkgutil.iter_modules(store.__path__):
        module = importlib.import_module(f"orderbridge.store.{found.name}")
        for name, value in vars(module).items():
            if isinstance(value, STATEMENTS):
                yield f"{found.name}.{name}", value


ALL = dict(_made_once())


@pytest.mark.parametrize("statement", ALL.values(), ids=ALL)
def test_a_statement_is_not_compiled_at_each_of_its_executions(statement: ClauseElement):
    assert statement._generate_cache_key() is not None


def test_two_pieces_that_a_database_has_its_own_words_for_are_not_taken_for_each_other():
    assert changed._generate_cache_key() != contents_ended_utc._generate_cache_key()
