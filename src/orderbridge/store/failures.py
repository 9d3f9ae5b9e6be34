"""What a database's error means: wait, never, a person is needed; and what a technician can do about it.

An error does not say which database it is from, and their signs differ: those of all of them are looked for.
"""

from functools import cache

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, OperationalError

from orderbridge.store.dialects import FAMILIES, of
from orderbridge.store.dialects.face import Dialect, Signs
from orderbridge.store.trouble import TroubleKind
from orderbridge.texts import say


def is_busy(error: DBAPIError) -> bool:
    """Whether somebody else holds the database or a row: wait and try again; nothing is wrong with the work."""
    return any(_shows(error, one.busy) for one in _all())


def is_refusal(error: DBAPIError) -> bool:
    """Whether the database does not take these values, by a type, a constraint or a trigger: it never will."""
    return isinstance(error, IntegrityError | DataError) or any(_shows(error, one.refused) for one in _all())


def is_broken(error: DBAPIError) -> bool:
    """Whether something is named that is not there, as a rule by a trigger of the POS: so it stays until it is mended."""
    return not is_busy(error) and any(_shows(error, one.broken) for one in _all())


def is_denied(error: DBAPIError) -> bool:
    """Whether this user lacks a right or the password is wrong: it takes a person."""
    return any(_shows(error, one.denied) for one in _all())


def kind(error: DBAPIError) -> TroubleKind:
    """What keeps the database from taking our work."""
    for found, signs in (
        (TroubleKind.FULL, [one.full for one in _all()]),
        (TroubleKind.READ_ONLY, [one.read_only for one in _all()]),
        (TroubleKind.BUSY, [one.busy for one in _all()]),
    ):
        if any(_shows(error, some) for some in signs):
            return found
    return TroubleKind.FAILING


@cache
def _all() -> tuple[Dialect, ...]:
    return tuple(of(name) for name in FAMILIES)


def _shows(error: DBAPIError, signs: Signs) -> bool:
    words = (sign for sign in signs if isinstance(sign, str) and " " in sign)
    return not _codes(error).isdisjoint(signs) or any(one in str(error.orig) for one in words)


def _codes(error: DBAPIError) -> set[object]:
    """The SQLSTATE and the driver's number; PyMySQL has both, and its SQLSTATE says less."""
    original = error.orig
    return {getattr(original, "sqlstate", None), *(original.args[:1] if original else ())}


def remedy(error: DBAPIError) -> str:
    """What a technician can do about trouble with the database."""
    remedies = [item for one in _all() for item in one.remedies.items()]
    for sign, sentence in remedies:
        if sign in _codes(error):
            return say(sentence)
    if is_refusal(error):
        return say("database.refuses")
    if is_busy(error):
        return say("database.busy")
    if is_denied(error):
        return say("database.denied")
    if is_broken(error):
        return say("database.no_such_table")
    for sign, sentence in remedies:
        if isinstance(sign, str) and sign in str(error.orig):
            return say(sentence)
    return say("database.unreachable" if isinstance(error, OperationalError) else "database.unknown")
