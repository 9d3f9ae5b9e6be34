"""A board with a database of its own, and a paired tablet."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.board.tablets import Address, Shop, Tablet, opened
from tests.store.samples import opened as file_opened

from orderbridge.store.database import Database


@pytest.fixture
def shop(tmp_path: Path, template: Path) -> Iterator[Shop]:
    path = tmp_path / "pos.db"
    path.write_bytes(template.read_bytes())
    database = Database(f"sqlite:///{path}")
    with file_opened(path) as pos:
        yield Shop(database=database, pos=pos)
    database.close()


@pytest.fixture
async def address(shop: Shop) -> AsyncIterator[Address]:
    async with opened(shop) as address:
        yield address


@pytest.fixture
def tablet(shop: Shop, address: Address) -> Tablet:
    return Tablet(address, shop.pair())
