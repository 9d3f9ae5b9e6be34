"""Secrets and tokens that the service quotes in every error appear in no column and in no log line."""

import html
import io
import json
import logging
from collections import defaultdict
from collections.abc import Iterator
from urllib.parse import quote

import pytest
import structlog
from tests.jobs.conftest import OpenShop
from tests.jobs.shop import Shop

from orderbridge.hiding import FORMER
from orderbridge.jobs.lists import Common, read_lists, read_statuses
from orderbridge.observe import logs
from orderbridge_sandbox import Fault, World
from orderbridge_sandbox.scenery import DEFAULT_SCENERY, KADIKOY
from orderbridge_sandbox.state import Account, Scenery

APP, REST, OTHERS = 'app/"k\\ey+1', "rest şube&<2>", "other secret/3=="
STATUSES = (200, 400, 401, 403, 404, 422, 429, 500, 502, 503)
EVERYTHING = ("get_current", "acknowledge", "accept", "on_the_way", "complete", "cancel", "open_restaurant")
EVERYTHING += ("deactivate_food", "get_restaurants", "get_restaurant_status", "get_cancel_reasons", "get_variables")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    stream, root = io.StringIO(), logging.getLogger()
    before = root.handlers[:], root.level
    logs.configure(level="debug", format="json", stream=stream, environ={})
    yield stream
    root.handlers[:], root.level = before
    structlog.reset_defaults()


@pytest.fixture
async def shop(open_shop: OpenShop, world: World) -> Shop:
    """Two accounts whose secrets need every kind of escape."""
    restaurants = {
        name: next(a for a in DEFAULT_SCENERY.accounts if a.name == name) for name in ("kadikoy", "besiktas")
    }
    world.scenery = Scenery(
        accounts=tuple(
            Account(
                name=name, app_secret_key=APP, rest_secret_key=secret, restaurant_ids=restaurants[name].restaurant_ids
            )
            for name, secret in (("kadikoy", REST), ("besiktas", OTHERS))
        ),
        restaurants=DEFAULT_SCENERY.restaurants,
        foods=DEFAULT_SCENERY.foods,
    )
    world.reset()
    return await open_shop(*restaurants, app_secret=APP, secrets={"kadikoy": REST, "besiktas": OTHERS})


def forms(secret: str) -> set[str]:
    in_json = json.dumps(secret)[1:-1]
    plain = {secret, in_json, in_json.replace("/", "\\/"), html.escape(secret), secret.upper()}
    return plain | {quote(secret, safe=""), quote(secret, safe="").lower(), quote(secret)}


def canaries(shop: Shop) -> set[str]:
    tokens = {token.text for token in shop.world.tokens.values()}
    assert len(tokens) >= 2
    return {form for secret in {APP, REST, OTHERS} | tokens for form in forms(secret)}


def known(shop: Shop) -> set[str]:
    """Without the tokens that are too long gone to be quoted: of each account the last few are blanked (hiding)."""
    of_account: dict[str, list[str]] = defaultdict(list)
    for token in shop.world.tokens.values():
        of_account[token.account.name].append(token.text)
    gone = {form for texts in of_account.values() for text in texts[: -FORMER - 1] for form in forms(text)}
    return canaries(shop) - gone


def quoting(shop: Shop, operation: str, status: int, number: int) -> Fault:
    """An error whose words are these, one of them where a long text is cut."""
    words = sorted(known(shop))
    word = words[number % len(words)]
    body = {
        "status": False,
        "error": f"{word} olmaz {'-' * (number % 190)}{word}",
        "message": f"{word}; {'x' * 980}{word}",
    }
    return Fault(operation=operation, status=status, body=json.dumps(body).encode())


async def go_through(shop: Shop, operation: str, status: int, number: int) -> None:
    """Everything that one operation is needed for, with an answer to it that quotes."""
    order = shop.place()
    await shop.poll("kadikoy")
    shop.world.faults.add(quoting(shop, operation, status, number))
    if operation in ("accept", "on_the_way", "complete", "cancel"):
        shop.act(operation, order)
    elif operation == "open_restaurant":
        shop.act(operation, restaurant_id=KADIKOY)
    elif operation == "deactivate_food":
        shop.act(operation, food_id=1001, account="kadikoy")
    elif operation == "acknowledge":
        shop.place()
    await shop.drain()
    await shop.poll("kadikoy")
    if operation.startswith("get_"):
        await read_lists(shop.accounts["kadikoy"], shop.database, tuple(shop.accounts), Common(shop.clock))
        await read_statuses(shop.accounts["kadikoy"], shop.database, shop.clock)
    shop.world.faults.clear()


async def test_what_an_error_quotes_stands_in_no_column_and_no_log_line(shop: Shop, written: io.StringIO) -> None:
    for name in shop.accounts:
        await shop.poll(name)
    for number, status in enumerate(STATUSES * 4):  # 40 rounds: each operation meets every second or third status
        operation = EVERYTHING[number % len(EVERYTHING)]
        shop.world.end_tokens("besiktas")  # a former token of another account, too
        await shop.poll("besiktas")  # 401: another one is got
        await shop.poll("besiktas")  # and succeeds, so that the login itself does not count as refused
        await go_through(shop, operation, status, number * 29)
    searched = {form for one in canaries(shop) for form in (one, json.dumps(one)[1:-1])}
    found = [(place, text) for place, text in texts(shop) for one in searched if one.lower() in text.lower()]
    assert found == []
    assert [
        line for line in written.getvalue().splitlines() if any(one.lower() in line.lower() for one in searched)
    ] == []
    assert "***" in written.getvalue() + "".join(text for _, text in texts(shop))


def texts(shop: Shop) -> Iterator[tuple[str, str]]:
    """Every text in the database."""
    for table in shop.rows("SELECT name FROM sqlite_master WHERE type = 'table'"):
        for row in shop.rows(f"SELECT * FROM {table['name']}"):
            for column, value in row.items():
                if isinstance(value, str):
                    yield f"{table['name']}.{column}", value
