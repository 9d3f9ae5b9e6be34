"""A session that never waits, for tests of other parts."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from orderbridge.clock import SystemClock
from orderbridge.marketplace.session import Session, Waits
from orderbridge.model import Token

AT_ONCE = Waits(refused=lambda times: 0.0, failed=lambda times, answered: 0.0, unsent=lambda times: 0.0, limited_s=0.0)

MINUTES = replace(AT_ONCE, refused=lambda times: 60.0 * times)


def a_session(obtain: Callable[[], Awaitable[Token]], *, token: Token | None = None, waits: Waits = AT_ONCE) -> Session:
    session = Session(obtain, clock=SystemClock(), waits=waits)
    if token is not None:
        session.use(token)
    return session
