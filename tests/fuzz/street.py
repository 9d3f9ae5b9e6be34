"""A restaurant (tests.jobs.shop) for synchronous tests: its loop runs, in virtual time, only during a step."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from tests.jobs.shop import FakeClock, Shop
from tests.jobs.virtual import VirtualLoop

from orderbridge.store import schema
from orderbridge.store.database import Database
from orderbridge_sandbox import World

_Result = TypeVar("_Result")


class Street:
    """One world, one file, and the shop that is open at the moment."""

    def __init__(self, empty: Path) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner(loop_factory=VirtualLoop)
        self.clock = FakeClock()
        self.path = Path(self._folder.name) / "pos.db"
        shutil.copy(empty, self.path)
        self.world = self.now(lambda: World.default(clock=self.clock.true, report=lambda _: None))
        self.shop = self._open()

    def _open(self) -> Shop:
        return self.run(Shop(self.world, self.clock, self.path).open())

    def run(self, step: Coroutine[Any, Any, _Result]) -> _Result:
        return self._runner.run(step)

    def now(self, step: Callable[[], _Result]) -> _Result:
        """What does not wait, but asks for the time."""

        async def inside() -> _Result:
            return step()

        return self.run(inside())

    def crash(self) -> None:
        """Nothing that is under way goes on, and a new shop opens on the same file."""

        async def end() -> None:
            under_way = asyncio.all_tasks() - {asyncio.current_task()}
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)
            await self.shop.close()

        self.run(end())
        self.shop = self._open()

    def close(self) -> None:
        self.run(self.shop.close())
        self._runner.close()
        self._folder.cleanup()


def make_empty(path: Path) -> Path:
    """A database with our tables and nothing in them."""
    database = Database(f"sqlite:///{path}", inline=True)
    database.write_now(schema.upgrade)
    database.close()
    return path
