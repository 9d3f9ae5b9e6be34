"""One file for each database: what it can do, how it is asked, what its errors mean. Nobody else in store names one.

A new database is a file beside these that makes a `Dialect` (face.py lists what it has to say), and a line here.
"""

from functools import cache

from orderbridge.errors import Unusable
from orderbridge.store.dialects.face import Dialect

FAMILIES = ("sqlite", "postgresql", "mysql")


@cache
def of(name: str) -> Dialect:
    """The dialect by SQLAlchemy's name for it, loaded when it is asked for. Raises Unusable for one that is not here."""
    # A program uses one of them.
    match name:
        case "sqlite" | "default":  # the default is for statements that are only printed
            from orderbridge.store.dialects.sqlite import DIALECT  # noqa: PLC0415
        case "postgresql":
            from orderbridge.store.dialects.postgresql import DIALECT  # noqa: PLC0415
        case "mysql" | "mariadb":
            from orderbridge.store.dialects.mysql import DIALECT  # noqa: PLC0415
        case _:
            raise Unusable("database.no_url", reason=name)
    return DIALECT
