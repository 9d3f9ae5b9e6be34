"""The differences between databases, one module for each. Other modules of store do not name a database.

A new database needs a module here that makes a `Dialect` (see face.py), and a case in `of`.
"""

from functools import cache

from orderbridge.errors import Unusable
from orderbridge.store.dialects.face import Dialect

FAMILIES = ("sqlite", "postgresql", "mysql")


@cache
def of(name: str) -> Dialect:
    """Load the dialect with this SQLAlchemy name. Raises Unusable if there is none."""
    match name:
        case "sqlite" | "default":  # "default" is for statements that are only printed
            from orderbridge.store.dialects.sqlite import DIALECT  # noqa: PLC0415
        case "postgresql":
            from orderbridge.store.dialects.postgresql import DIALECT  # noqa: PLC0415
        case "mysql" | "mariadb":
            from orderbridge.store.dialects.mysql import DIALECT  # noqa: PLC0415
        case _:
            raise Unusable("database.no_url", reason=name)
    return DIALECT
