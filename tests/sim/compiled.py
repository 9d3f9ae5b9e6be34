"""Statements that are compiled once for all lives: each engine would compile the same ones anew.

What a database is told is made from them, so a bug that is planted must meet none that were compiled without it, and
leave none behind: tests.sim.planting gives it a place of its own.
"""

from typing import Any

from sqlalchemy import create_engine

from orderbridge.store.database import Database


class Compiled:
    """A dialect, which keeps how values are converted, and what was compiled for it."""

    def __init__(self) -> None:
        engine = create_engine("sqlite://")
        engine.connect().close()  # it asks the driver then what it can do
        self._dialect = engine.dialect
        self._statements: dict[Any, Any] = {}

    def share(self, database: Database) -> None:
        """This database compiles nothing that another one has compiled."""
        database.engine.dialect = self._dialect
        database.engine.update_execution_options(compiled_cache=self._statements)


_kept = Compiled()


def share_compiled(database: Database) -> None:
    """This database compiles nothing that another one of this process has compiled."""
    _kept.share(database)
