"""A world with a clock that tests set, a POS that calls the application, and a client of a real socket."""

import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from orderbridge_sandbox import Sandbox, World, create_app
from orderbridge_sandbox.scenery import APP_SECRET

WITHIN_S = 60.0  # on a busy machine; a failing test would wait for ever, or for an hour


def client_of(sandbox: Sandbox) -> httpx.Client:
    context = ssl.create_default_context(cafile=sandbox.ca_file)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # what Python 3.13 does by itself
    return httpx.Client(base_url=sandbox.base_url, verify=context, timeout=WITHIN_S, trust_env=False)


class FakeClock:
    def __init__(self) -> None:
        self.now = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Pos:
    def __init__(self, http: httpx.AsyncClient, name: str) -> None:
        self.http = http
        self.secrets = {"app_secret_key": APP_SECRET, "rest_secret_key": f"sandbox-{name}-secret"}
        self.headers: dict[str, str] = {}

    async def login(self) -> httpx.Response:
        answer = await self.http.post("/auth/login", json=self.secrets)
        if answer.status_code == 200:
            self.headers = {"Access-Token": answer.json()["data"]["access_token"]}
        return answer

    async def get(self, path: str) -> httpx.Response:
        return await self.http.get(path, headers=self.headers)

    async def put(self, path: str, body: Any = None) -> httpx.Response:
        return await self.http.put(path, headers=self.headers, **({} if body is None else {"json": body}))

    async def poll(self, query: str = "") -> list[dict[str, Any]]:
        answer = await self.get("/orders/get-current" + query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def world(clock: FakeClock) -> World:
    return World.default(clock=clock)


@pytest.fixture
async def http(world: World) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(create_app(world))
    async with httpx.AsyncClient(transport=transport, base_url="https://sandbox.test") as client:
        yield client


@pytest.fixture
async def pos(http: httpx.AsyncClient) -> Pos:
    """The POS of the one branch in Kadıköy, logged in."""
    pos = Pos(http, "kadikoy")
    await pos.login()
    return pos


@pytest.fixture
async def chain(http: httpx.AsyncClient) -> Pos:
    """The POS of the chain with two branches, logged in."""
    pos = Pos(http, "chain")
    await pos.login()
    return pos
