"""A rolling upgrade: the former version continues to work on the newer tables."""

import contextlib
import os
import signal

import pytest
from tests import databases
from tests.databases import SERVERS
from tests.live.test_server_away import Pos
from tests.test_daemon import ended, logged, process, set_url, until

from orderbridge_sandbox.scenery import KADIKOY

# What a next version may do, as CONTRIBUTING.md has it: tables and columns are added, nothing is taken or renamed.
NEWER = (
    "ALTER TABLE delivery_orders ADD COLUMN made_up VARCHAR(20) DEFAULT 'x'",
    "ALTER TABLE delivery_actions ADD COLUMN made_up INTEGER",
    "ALTER TABLE delivery_accounts ADD COLUMN made_up INTEGER NOT NULL DEFAULT 0",
    "CREATE TABLE delivery_made_up (id INTEGER PRIMARY KEY)",
    "UPDATE delivery_schema_version SET version_num = '9999'",
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SERVERS)
async def test_a_daemon_works_on_after_a_newer_one_changed_the_schema(kind, configuration, world, request):
    server = request.getfixturevalue(f"{kind}_server")
    with databases.own_database(server, f"obs_rolling_{os.getpid()}") as url, contextlib.closing(Pos(url)) as pos:
        set_url(configuration, url)
        before = world.place_order(restaurant_id=KADIKOY)
        async with process(configuration) as daemon:
            await until(lambda: before.acknowledged)
            for statement in NEWER:
                pos.run(statement)
            late = world.place_order(restaurant_id=KADIKOY)
            await until(lambda: late.acknowledged)
            pos.accept(late)
            await until(lambda: pos.state(late) == "done")
            world.cancel_by_customer(before.key)
            await until(lambda: pos.stored()[before.key] == before.status_id)
            assert await ended(daemon, signal.SIGTERM) == 0
        assert logged(configuration, "job.crashed") == logged(configuration, "database.failed") == []
        async with process(configuration) as daemon:
            assert await ended(daemon) == 78, "an older program does not start on a newer schema"
