"""A statement is compiled once: SQLAlchemy caches what it can name."""

import importlib
import pkgutil

from sqlalchemy import CompoundSelect, Delete, Insert, Select, Update

from orderbridge import store
from orderbridge.store.tables import changed, contents_ended_utc

STATEMENTS = (CompoundSelect, Delete, Insert, Select, Update)


def test_a_statement_of_a_module_is_not_compiled_at_each_of_its_executions():
    modules = [importlib.import_module(f"orderbridge.store.{one.name}") for one in pkgutil.iter_modules(store.__path__)]
    statements = {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, STATEMENTS)
    }
    assert len(statements) > 50
    assert [name for name, statement in statements.items() if statement._generate_cache_key() is None] == []


def test_two_pieces_that_a_database_has_its_own_words_for_are_not_taken_for_each_other():
    assert changed._generate_cache_key() != contents_ended_utc._generate_cache_key()
