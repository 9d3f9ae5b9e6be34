"""Endpoint 1 and "Authentication"."""

from typing import Any

import pytest

from orderbridge_sandbox.rules import ENDPOINTS, Operation

GOOD = {"app_secret_key": "sandbox-app-secret", "rest_secret_key": "sandbox-kadikoy-secret"}
JSON = {"Content-Type": "application/json"}
FIXED_MESSAGE = {Operation.GET_RESTAURANTS, Operation.GET_CURRENT}


@pytest.mark.interface("Access token", "Endpoints 1", "Authentication 1", "Authentication 2")
async def test_a_login_gives_a_token_for_24_hours_in_istanbul_time(world, http, pos, clock):
    answer = await http.post("/auth/login", json=GOOD, headers={"Content-Type": "application/json; charset=utf-8"})
    data = answer.json()["data"]
    assert (answer.status_code, answer.json()["status"], data.keys()) == (
        200,
        True,
        {"access_token", "expiration_date"},
    )
    assert data["expiration_date"] == "2026-03-02 15:00:00"  # 12:00 UTC is 15:00 there
    world.set_options(expiration_timezone="America/New_York")
    answer = await http.post("/auth/login", json=GOOD)
    assert answer.json()["data"]["expiration_date"] == "2026-03-02 07:00:00"
    clock.advance(86_399)
    assert (await pos.get("/orders/variables")).status_code == 200
    clock.advance(1)
    assert (await pos.get("/orders/variables")).status_code == 401


@pytest.mark.interface("Conventions", "Endpoints 1", "Authentication 2")
async def test_a_login_without_a_credential_lacks_a_field(http):
    lacking = [{}, [1], {"app_secret_key": "sandbox-app-secret"}]
    lacking += [GOOD | {"rest_secret_key": value} for value in (None, "", 7)]
    sent: list[dict[str, Any]] = [{"data": GOOD}, *({"json": document} for document in lacking)]
    sent += [{"content": content, "headers": JSON} for content in (b"{broken", b"", b"[" * 100_000)]
    for one in sent:
        answer = await http.post("/auth/login", **one)
        assert (answer.status_code, answer.json()) == (422, {"status": False, "error": "eksik alan"}), str(one)[:80]


@pytest.mark.interface("Endpoints 1", "Authentication 2", "Errors")
async def test_a_wrong_credential_is_refused(http):
    for wrong in GOOD:
        answer = await http.post("/auth/login", json=GOOD | {wrong: "wrong"})
        refusal = {"status": False, "error": "yetkisiz erişim", "message": "Invalid credentials"}
        assert (answer.status_code, answer.json()) == (401, refusal)


@pytest.mark.interface("Endpoints 12", "Endpoints 13", "Endpoints 14")
async def test_every_other_operation_wants_a_token_first(http):
    for operation, method, path in (endpoint for endpoint in ENDPOINTS if endpoint[0] is not Operation.LOGIN):
        message = "Invalid or expired access token" if operation in FIXED_MESSAGE else "Token expired or invalid"
        for headers in ({}, {"Access-Token": ""}, {"Access-Token": "invented"}):
            answer = await http.request(method, path.format(id="no id at all"), headers=headers)
            refusal = {"status": False, "error": "yetkisiz erişim", "message": message}
            assert (answer.status_code, answer.json()) == (401, refusal), operation


@pytest.mark.interface("Authentication 1", "Authentication 4")
@pytest.mark.parametrize("ends, status", [(False, 200), (True, 401)])
async def test_an_earlier_token_stays_valid_after_a_new_login_unless_switched(world, pos, chain, ends, status):
    world.set_options(new_login_ends_old_token=ends, token_message="Invalid or expired access token")
    old = pos.headers
    await pos.login()
    assert pos.headers != old
    assert [(await one.get("/orders/variables")).status_code for one in (pos, chain)] == [200, 200]
    pos.headers = old
    answer = await pos.get("/orders/variables")
    assert (answer.status_code, answer.json().get("message", "")[:7]) == (status, "Invalid" if ends else "")
    world.refuse_account("kadikoy")
    assert (await pos.get("/orders/variables")).status_code == 401
    assert (await pos.login()).json()["message"] == "Invalid credentials"
