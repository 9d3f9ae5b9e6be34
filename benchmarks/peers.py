"""The programs that orderbridge is compared with: loops without a database, and two queues on PostgreSQL.

    PEERS-PYTHON benchmarks/peers.py outbox NAME ROWS BASE_URL CA_FILE [DSN]
    PEERS-PYTHON benchmarks/peers.py latency NAME BASE_URL CA_FILE DSN

NAME: httpx (one-connection clients), pgqueuer, procrastinate, for latency also listen. 32 requests in flight. It needs
its own environment (`benchmarks/peers.txt`). `outbox` prints one JSON object: seconds of wall and processor
time. `latency` prints "ready"; for each line of its input it commits one job and prints the machine's monotonic clock.
"""

import asyncio
import contextlib
import json
import resource
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Self

IN_FLIGHT = 32
Put = Callable[[str], Awaitable[None]]


def path(number: int) -> str:
    return f"/foods/status-active/{number}"


@contextlib.asynccontextmanager
async def clients(base_url: str, ca_file: str) -> AsyncIterator[Put]:
    """One httpx client for each connection, the most recently used one first: httpx's pool does not scale."""
    import httpx

    context = ssl.create_default_context(cafile=ca_file)
    one = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=60)
    free: asyncio.LifoQueue[httpx.AsyncClient] = asyncio.LifoQueue()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(IN_FLIGHT):
            client = httpx.AsyncClient(base_url=base_url, verify=context, limits=one, timeout=30, trust_env=False)
            free.put_nowait(await stack.enter_async_context(client))

        async def put(target: str) -> None:
            client = await free.get()
            try:
                answer = await client.put(target, headers={"Access-Token": "x" * 40})
                assert answer.json()["status"]
            finally:
                free.put_nowait(client)

        await asyncio.gather(*(put("/warm") for _ in range(IN_FLIGHT)))
        yield put


class Spent:
    """The wall and processor seconds of the block."""

    def __enter__(self) -> Self:
        self._began, self._cpu = time.perf_counter(), cpu_s()
        return self

    def __exit__(self, *_: object) -> None:
        self.wall, self.cpu = time.perf_counter() - self._began, cpu_s() - self._cpu


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def bare(put: Put, rows: int, _: str) -> Spent:
    numbers = iter(range(rows))

    async def worker() -> None:
        for number in numbers:
            await put(path(number))

    with Spent() as spent:
        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
    return spent


async def pgqueuer(put: Put, rows: int, dsn: str) -> Spent:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgPoolDriver
    from pgqueuer.types import QueueExecutionMode

    pool = await asyncpg.create_pool(dsn, min_size=4, max_size=16)
    queue = PgQueuer(AsyncpgPoolDriver(pool))

    @queue.entrypoint("send")
    async def send(job) -> None:  # type: ignore[no-untyped-def]
        await put(job.payload.decode())

    await queue.qm.queries.install()
    await queue.qm.queries.enqueue(["send"] * rows, [path(n).encode() for n in range(rows)], [0] * rows)
    with Spent() as spent:
        await queue.qm.run(batch_size=IN_FLIGHT // 2, max_concurrent_tasks=IN_FLIGHT, mode=QueueExecutionMode.drain)
    await pool.close()
    return spent


async def procrastinate(put: Put, rows: int, dsn: str) -> Spent:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=4, max_size=IN_FLIGHT))

    @app.task(name="send")
    async def send(target: str) -> None:
        await put(target)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        for start in range(0, rows, 1000):
            batch = range(start, min(rows, start + 1000))
            await send.batch_defer_async(*({"target": path(number)} for number in batch))
        with Spent() as spent:
            await app.run_worker_async(concurrency=IN_FLIGHT, wait=False, install_signal_handlers=False)
    return spent


OUTBOX = {"httpx": bare, "pgqueuer": pgqueuer, "procrastinate": procrastinate}


async def outbox(name: str, rows: int, base_url: str, ca_file: str, dsn: str = "") -> None:
    async with clients(base_url, ca_file) as put:
        spent = await OUTBOX[name](put, rows, dsn)
    print(json.dumps({"wall": spent.wall, "cpu": spent.cpu}), flush=True)


# ---- from COMMIT to the wire ----------------------------------------------------------------------------------------

Send = Callable[[str], Awaitable[object]]


@contextlib.asynccontextmanager
async def listening(put: Put, dsn: str) -> AsyncIterator[Send]:
    """The least that is possible: LISTEN, and one PUT for each NOTIFY."""
    import asyncpg

    hearing, telling = await asyncpg.connect(dsn), await asyncpg.connect(dsn)
    tasks: set[asyncio.Task[None]] = set()

    def heard(*about: object) -> None:
        task = asyncio.ensure_future(put(str(about[3])))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    await hearing.add_listener("bench", heard)
    yield lambda target: telling.execute("SELECT pg_notify('bench', $1)", target)
    await hearing.close()
    await telling.close()


@contextlib.asynccontextmanager
async def by_pgqueuer(put: Put, dsn: str) -> AsyncIterator[Send]:
    import asyncpg
    from pgqueuer import PgQueuer
    from pgqueuer.db import AsyncpgPoolDriver

    queue = PgQueuer(AsyncpgPoolDriver(await asyncpg.create_pool(dsn, min_size=4, max_size=16)))

    @queue.entrypoint("send")
    async def send(job) -> None:  # type: ignore[no-untyped-def]
        await put(job.payload.decode())

    await queue.qm.queries.install()
    worker = asyncio.create_task(queue.qm.run(batch_size=10, max_concurrent_tasks=IN_FLIGHT))
    yield lambda target: queue.qm.queries.enqueue("send", target.encode(), 0)
    worker.cancel()


@contextlib.asynccontextmanager
async def by_procrastinate(put: Put, dsn: str) -> AsyncIterator[Send]:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn, min_size=4, max_size=8))

    @app.task(name="send")
    async def send(target: str) -> None:
        await put(target)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        worker = asyncio.create_task(app.run_worker_async(concurrency=IN_FLIGHT, install_signal_handlers=False))
        yield lambda target: send.defer_async(target=target)
        worker.cancel()


LATENCY = {"listen": listening, "pgqueuer": by_pgqueuer, "procrastinate": by_procrastinate}


async def latency(name: str, base_url: str, ca_file: str, dsn: str) -> None:
    async with clients(base_url, ca_file) as put, LATENCY[name](put, dsn) as send:
        await asyncio.sleep(2.0)  # until the worker listens
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            await send(path(int(line)))
            print(time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    what, name, *rest = sys.argv[1:]
    if what == "outbox":
        rows, *where = rest
        asyncio.run(outbox(name, int(rows), *where))
    else:
        asyncio.run(latency(name, *rest))
