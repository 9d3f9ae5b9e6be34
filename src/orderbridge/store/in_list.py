"""`column IN (…)` for a list that each execution passes as `wanted`.

Where the database has arrays the list is one parameter: one text for lists of every length, which is prepared once.
Written out, each length would be a statement of its own, and each value a cast to render.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from sqlalchemy import ARRAY, Boolean, ColumnElement, bindparam
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from orderbridge.store.dialects import of

BATCH = 500  # values in one list: every database takes it

T = TypeVar("T")


class in_list(FunctionElement[bool]):  # noqa: N801 - it reads as a part of SQL
    """Whether the column's value is one of `wanted`."""

    inherit_cache = True
    type = Boolean()

    def __init__(self, column: ColumnElement[Any]) -> None:
        listed = column.in_(bindparam("wanted", expanding=True))
        super().__init__(listed, column, bindparam("wanted", type_=ARRAY(column.type)))

    def self_group(self, against: object = None) -> "in_list":  # noqa: ARG002 - as SQLAlchemy calls it
        """It is a condition as it stands: were it compared with 1, as a function would be, no index would serve."""
        return self


@compiles(in_list)
def _in_list(element: in_list, compiler: SQLCompiler, **more: Any) -> str:
    listed, column, wanted = element.clauses
    if of(compiler.dialect.name).arrays:
        return f"{compiler.process(column, **more)} = ANY({compiler.process(wanted, **more)})"
    return compiler.process(listed, **more)


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """At most 500 values per statement."""
    listed = list(values)
    for start in range(0, len(listed), BATCH):
        yield listed[start : start + BATCH]
