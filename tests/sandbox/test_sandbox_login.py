"""Endpoint 1 and "Authentication"."""

from typing import Any

import pytest

from orderbridge_sandbox.rules import ENDPOINTS, Operation

GOOD = {"app_secret_key": "sandbox-app-secret", "rest_secret_key": "sandbox-kadikoy-secret"}
JSON = {"Content-Type": "application/json"}
FIXED_MESSAGE = {Operation.GET_RESTAURANTS, Operation.GET_CURRENT}


@pytest.mark.interface("Access token", "Endpoints 1", "Authentication 1")
async def test_a_login_gives_a_token_for_24_hours_in_istanbul_time(http):
    answer = await http.post("/auth/login", json=GOOD)
    data = answer.json()["data"]
    assert (answer.status_code, answer.json()["status"]) == (200, True)
    assert data.keys() == {"access_token", "expiration_date"}
    assert data["expiration_date"] == "2026-03-02 15:00:00"  # 12:00 UTC is 15:00 there


@pytest.mark.interface("Conventions", "Endpoints 1", "Authentication 2")
@pytest.mark.parametrize(
    "request_parts",
    [
        pytest.param({"json": {}}, id="nothing"),
        pytest.param({"json": {"app_secret_key": "sandbox-app-secret"}}, id="no rest_secret_key"),
        pytest.param({"json": {"rest_secret_key": "sandbox-kadikoy-secret"}}, id="no app_secret_key"),
        pytest.param({"json": GOOD | {"rest_secret_key": None}}, id="null"),
        pytest.param({"json": GOOD | {"rest_secret_key": ""}}, id="empty"),
        pytest.param({"json": GOOD | {"rest_secret_key": 7}}, id="a number"),
        pytest.param({"json": [1]}, id="a list"),
        pytest.param({"content": b"{broken", "headers": JSON}, id="broken JSON"),
        pytest.param({"content": b"", "headers": JSON}, id="no body"),
        pytest.param({"content": b"[" * 100_000, "headers": JSON}, id="deep JSON"),
        pytest.param({"data": GOOD}, id="a form"),
    ],
)
async def test_a_login_without_a_credential_lacks_a_field(http, request_parts: dict[str, Any]):
    answer = await http.post("/auth/login", **request_parts)
    assert (answer.status_code, answer.json()) == (422, {"status": False, "error": "eksik alan"})


async def test_json_with_a_charset_is_read(http):
    content = b'{"app_secret_key": "sandbox-app-secret", "rest_secret_key": "sandbox-kadikoy-secret"}'
    answer = await http.post(
        "/auth/login", content=content, headers={"Content-Type": "application/json; charset=utf-8"}
    )
    assert answer.status_code == 200


@pytest.mark.interface("Endpoints 1", "Authentication 2", "Errors")
@pytest.mark.parametrize("wrong", ["app_secret_key", "rest_secret_key"])
async def test_a_wrong_credential_is_refused(http, wrong: str):
    answer = await http.post("/auth/login", json=GOOD | {wrong: "wrong"})
    assert answer.status_code == 401
    assert answer.json() == {"status": False, "error": "yetkisiz erişim", "message": "Invalid credentials"}


@pytest.mark.interface("Endpoints 12", "Endpoints 13", "Endpoints 14")
@pytest.mark.parametrize(
    "operation, method, path", [pytest.param(*line, id=line[0]) for line in ENDPOINTS if line[0] is not Operation.LOGIN]
)
@pytest.mark.parametrize("token", [None, "", "invented"], ids=["missing", "empty", "invented"])
async def test_every_other_operation_wants_a_token_first(http, operation, method: str, path: str, token: str | None):
    headers = {} if token is None else {"Access-Token": token}
    answer = await http.request(method, path.format(id="no id at all"), headers=headers)
    message = "Invalid or expired access token" if operation in FIXED_MESSAGE else "Token expired or invalid"
    assert answer.status_code == 401
    assert answer.json() == {"status": False, "error": "yetkisiz erişim", "message": message}


@pytest.mark.interface("Authentication 2")
async def test_the_other_message_of_a_401_can_be_chosen(world, http):
    world.set_options(token_message="Invalid or expired access token")
    answer = await http.get("/orders/variables")
    assert answer.json()["message"] == "Invalid or expired access token"


@pytest.mark.interface("Access token", "Authentication 1", "Authentication 2")
async def test_a_token_ends_after_24_hours(pos, clock):
    clock.advance(86_399)
    assert (await pos.get("/orders/variables")).status_code == 200
    clock.advance(1)
    assert (await pos.get("/orders/variables")).status_code == 401


@pytest.mark.interface("Authentication 1", "Authentication 4")
async def test_an_earlier_token_stays_valid_after_a_new_login(pos):
    old = pos.headers
    await pos.login()
    assert pos.headers != old
    pos.headers = old
    assert (await pos.get("/orders/variables")).status_code == 200


@pytest.mark.interface("Authentication 4")
async def test_an_earlier_token_can_end_with_a_new_login(world, pos, chain):
    world.set_options(new_login_ends_old_token=True)
    old = pos.headers
    await pos.login()
    assert (await pos.get("/orders/variables")).status_code == 200
    assert (await chain.get("/orders/variables")).status_code == 200
    pos.headers = old
    assert (await pos.get("/orders/variables")).status_code == 401


@pytest.mark.interface("Access token")
async def test_the_expiry_can_be_in_a_wrong_zone(world, pos):
    world.set_options(expiration_timezone="America/New_York")
    answer = await pos.login()
    assert answer.json()["data"]["expiration_date"] == "2026-03-02 07:00:00"


async def test_a_credential_can_be_taken_away(world, pos):
    world.refuse_account("kadikoy")
    assert (await pos.get("/orders/variables")).status_code == 401
    assert (await pos.login()).json()["message"] == "Invalid credentials"
