"""A restaurant for each test, with a file of its own, in virtual time."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.jobs.shop import FakeClock, Shop
from tests.jobs.virtual import VirtualLoop

from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import DEFAULT_SCENERY, KADIKOY

OpenShop = Callable[..., Awaitable[Shop]]


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> Mapping[str, Callable[[], Any]]:
    return {"virtual": VirtualLoop}


@pytest.fixture
async def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def world(clock: FakeClock) -> World:
    return World.default(clock=clock.true, report=lambda line: None)


@pytest.fixture
async def shared_branch(world: World) -> World:
    """A second credential that reaches the branch in Kadıköy too."""
    first, *others = DEFAULT_SCENERY.accounts
    second = replace(first, name="second", rest_secret_key="sandbox-second-secret", restaurant_ids=(KADIKOY,))
    world.scenery = replace(DEFAULT_SCENERY, accounts=(first, second, *others))
    world.reset()
    return world


@pytest.fixture
async def open_shop(world, clock, tmp_path, empty_file, template, request) -> AsyncIterator[OpenShop]:
    """Opens a shop of the named accounts on the test's file; a second one is the first one started again."""
    opened: list[Shop] = []
    plays_daemon = request.node.get_closest_marker("plays_daemon")
    shutil.copy(template if plays_daemon else empty_file, tmp_path / "pos.db")

    async def open_shop(*names: str, **changes: Any) -> Shop:
        shop = Shop(world, clock, tmp_path / "pos.db", *names, **changes)
        opened.append(shop)
        return await shop.open()

    yield open_shop
    for shop in opened:
        await shop.close()


@pytest.fixture
def restore(open_shop: OpenShop) -> OpenShop:
    """Kills the daemon, puts the copy that `Shop.back_up` made in the place of the file, and starts a daemon on it."""

    async def restore(shop: Shop, name: str = "backup.db") -> Shop:
        await shop.crash()
        for task in asyncio.all_tasks():  # a daemon that was killed notes nothing more
            if task.get_coro().__qualname__ == "RestoreCheck._note":  # type: ignore[union-attr]
                task.cancel()
        shop.remove_file()
        shutil.copy(shop.path.with_name(name), shop.path)
        return await open_shop(*shop.names, **shop.changes)

    return restore


@pytest.fixture
async def shop(open_shop: OpenShop) -> Shop:
    return await open_shop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pos.db.documents"
