"""An older copy is restored under a running daemon: acknowledged orders come back, and nothing is sent twice."""

import asyncio
import shutil
import signal
from pathlib import Path

from tests.live.test_file_lost import stored
from tests.test_daemon import COMMAND, Till, ended, log_of, logged, process, until

from orderbridge.store import journal
from orderbridge_sandbox import World
from orderbridge_sandbox.scenery import KADIKOY


async def command(configuration: Path, *arguments: object) -> tuple[int, str]:
    done = await asyncio.create_subprocess_exec(
        COMMAND,
        *map(str, arguments),
        "--config",
        configuration,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await done.communicate()
    return done.returncode or 0, out.decode()


def in_journal(path: Path) -> set[str]:
    files = journal.files(path.with_name("pos.db.documents"))
    return {entry.payment_key for entry in journal.entries(files) if entry is not None}


async def test_a_restore_of_an_older_copy_under_load_loses_nothing(configuration: Path, till: Till, world: World):
    placed = [world.place_order(restaurant_id=KADIKOY) for _ in range(10)]
    copy = till.path.with_name("backup.db")
    async with process(configuration) as daemon:
        await until(lambda: all(order.acknowledged for order in placed))
        assert (await command(configuration, "db", "backup", copy))[0] == 0
        placed += [world.place_order(restaurant_id=KADIKOY) for _ in range(30)]
        await until(lambda: sum(order.acknowledged for order in placed) > 20)
        late = next(order for order in placed[10:] if order.acknowledged)
        row = till.accept(late)
        await until(lambda: till.state(row) == "done")
        await ended(daemon, signal.SIGKILL)
    acknowledged = {order.key for order in placed if order.acknowledged}
    assert acknowledged <= in_journal(till.path)
    for beside in ("-wal", "-shm"):
        till.path.with_name(f"pos.db{beside}").unlink()
    shutil.copy(copy, till.path)
    assert not acknowledged <= stored(till.path)
    async with process(configuration) as daemon:
        await until(lambda: "database_restored" in log_of(configuration))
        new = world.place_order(restaurant_id=KADIKOY)
        await until(lambda: new.acknowledged)  # nothing is held up
        code, message = await command(configuration, "db", "replay")
        assert code == 0, message
        assert acknowledged <= stored(till.path)
        await until(lambda: any(line["code"] == "database_restored" for line in logged(configuration, "problem.ended")))
        await until(lambda: all(order.acknowledged for order in placed))
        assert await ended(daemon, signal.SIGTERM) == 0
    assert {order.key for order in placed} <= in_journal(till.path)
    assert len(world.calls("accept")) == 1
    taken_over = till.rows("SELECT payment_key FROM delivery_orders WHERE pos_revision > 0")
    assert taken_over == [], "all of them are shown to the till"
