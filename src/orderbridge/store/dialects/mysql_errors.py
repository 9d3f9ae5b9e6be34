"""What the errors of MariaDB and MySQL mean: numbers of the server, and words where a number says too little."""

import re
from collections.abc import Mapping
from typing import Any

from orderbridge.store.dialects import servers
from orderbridge.store.dialects.face import Violated

PACKET_TOO_LARGE = 1153  # the server's own number for it
TOO_LARGE = "database.too_large"
# Our key is named PRIMARY, as anybody's is. So by its value: no id given, the last one, an order's line, an attempt.
OWN_ENTRY = re.compile(
    r"Duplicate entry '(0|9223372036854775807|[0-9a-f-]{36}(-\d+)+|\d+-\d+)' for key '(\w+\.)?PRIMARY'"
)
ENTRY_KEY = re.compile(r"Duplicate entry '.*' for key '(?:\w+\.)?(\w+)'", re.DOTALL)
UNFILLED = re.compile(r"(?:field|column) '(\w+)'", re.IGNORECASE)
INTO = re.compile(r"\s*INSERT INTO `?(\w+)")
LAST_NUMBER = 4999  # of the server's own errors; a trigger's SIGNAL may have any MYSQL_ERRNO


def _violated(error: Any, statement: str) -> Violated:
    number, said = (error.args or (0,))[0], str(error)
    if number in {1062, 1586}:
        entry = ENTRY_KEY.search(said)
        if entry is None or (entry[1] == "PRIMARY" and OWN_ENTRY.search(said) is None):
            return Violated()
        return Violated(key=entry[1])
    column, table = UNFILLED.search(said), INTO.match(statement)
    if number in {167, 1048, 1264, 1364} and column is not None and table is not None:
        return Violated(unfilled=f"{table[1]}.{column[1]}")
    return Violated()


def _signalled(error: Any) -> bool:
    """Whether the number is none of the server's: the protocol has 16 bits for it, and the driver takes one for the sign."""
    number = error.args[0] if error.args else 0
    return isinstance(number, int) and not 0 <= number <= LAST_NUMBER


SIGNS: Mapping[str, Any] = {
    # Who loses a deadlock within a savepoint hears of it only that the savepoint is gone.
    "busy": frozenset({1205, 1213, "SAVEPOINT sa_savepoint"}),
    "refused": frozenset(
        {
            *(1642, 1643, 1644, 1645, 4025, 3819),  # a trigger's own error, and the CHECK of one and of the other
            *(
                167,
                1136,
                1364,
                1292,
                1301,
                1365,
                1369,
                1411,
                1690,
            ),  # a value: none given, not one of its type, out of range
            *(1172, 1242, 1329, 1339),  # in a trigger: a query of one row that has none or several, CASE
            *(1422, 1424, 1442, 1456),  # in a trigger: COMMIT, recursion, a change of the table itself
            *(1118, 1526, 1557, 1713, 1748, 1761, 1762, 1859),  # a row's size, partition, or foreign key
            *(3140, 3141, 3143, 3156, 4038),  # JSON
        }
    ),
    "refuses": _signalled,
    "ours": frozenset({1467}),  # no id is left
    "violated": _violated,
    "full": frozenset({28, 1021, 1114, "No space left"}),
    "read_only": frozenset({1036, 1290, 1836, 3100}),
    "broken": frozenset({1054, 1146, 1305}),
    "denied": frozenset({1044, 1045, 1142, 1227, 1698}),
    "remedies": {
        PACKET_TOO_LARGE: TOO_LARGE,
        1049: "database.none_there",
        1021: servers.FULL,
        1114: servers.FULL,
        1040: servers.TOO_MANY,
        1203: servers.USER_LIMIT,
        1226: servers.USER_LIMIT,
        "read-only": servers.STANDBY,
    },
}
