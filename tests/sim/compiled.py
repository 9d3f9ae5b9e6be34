"""Compiles statements once for all lives, because each engine would compile them again.

A planted bug must not meet statements that were compiled without it, nor leave its own behind: tests.sim.planting gives
it a cache of its own.
"""

from typing import Any

from sqlalchemy import create_engine

from orderbridge.store.database import Database


class Compiled:
    """A dialect, which keeps how values are converted, with its compiled statements."""

    def __init__(self) -> None:
        engine = create_engine("sqlite://")
        engine.connect().close()  # the dialect asks the driver for its features here
        self._dialect = engine.dialect
        self._statements: dict[Any, Any] = {}

    def share(self, database: Database) -> None:
        """Let this database use what another one has compiled."""
        database.engine.dialect = self._dialect
        database.engine.update_execution_options(compiled_cache=self._statements)


_kept = Compiled()


def share_compiled(database: Database) -> None:
    """Let this database use what another one of this process has compiled."""
    _kept.share(database)
