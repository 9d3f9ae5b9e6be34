"""What makes the outbox look soon after a POS has written: a fraction of a second after its COMMIT.

How somebody else's commit is noticed is each database's own matter; where it cannot be, the clock does it. Whatever
fails here, the outbox looks by itself every two seconds.
"""

import asyncio
from collections.abc import Callable

from sqlalchemy import Engine

from orderbridge.store.dialects import of

WATCH_S = 0.25


async def watch(engine: Engine, wake: Callable[[], None]) -> None:
    """Call `wake` soon after each commit of somebody else; runs until it is cancelled."""
    await of(engine.dialect.name).watch(engine, wake)
    while True:
        await asyncio.sleep(WATCH_S)
        wake()
