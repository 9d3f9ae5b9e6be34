"""Who may use the board, by Host header, page and device, and the answers to refused requests."""

import asyncio
import json

import pytest
from tests.board.tablets import CLOCK, Address, Shop, Tablet, answer_of, opened
from tests.store.samples import KEY, put_order
from tests.web.asking import rest_of, sent

from orderbridge.rules.problems import Code, Problem, Severity
from orderbridge_board import devices, door, pages, shell
from orderbridge_board.devices import ACT, LOOK, LOOK_CUSTOMERS, TRIES

ASKED = ("state", "menu", "technician", "customer", "stream")
TOLD = ("act", "back", "seen", "here")
EVERYWHERE = [*shell.served(), *(f"/board/{name}" for name in ASKED), "/livez", "/readyz", "/metrics", "/x"]
CANARY = "canary"
PERSONAL = ("customer_name", "customer_phone", "address", "address_description", "building_no", "payload")
CUSTOMER = {name: f"{CANARY} {name}" for name in PERSONAL}
HEADERS = ["content-security-policy: default-src 'self'; frame-ancestors 'none'", "cache-control: no-store"]
HEADERS += ["x-content-type-options: nosniff", "referrer-policy: no-referrer", "x-frame-options: deny"]
HEADERS.append("cross-origin-resource-policy: same-origin")


async def test_a_foreign_host_is_refused_on_every_route(tablet: Tablet):
    for path in EVERYWHERE:
        answer = await tablet.get(path, host="evil.example")
        assert answer.status == 400 and "content-security-policy" in answer.head, path
    for name in (*TOLD, "pair"):
        assert (await tablet.post(name, {}, host="evil.example", sec_fetch_site="same-origin")).status == 400
    foreign = ("192.168.1.9", "127.0.0.1.evil.example", "[::2]", "localhost.evil:80", "10.0.0.1:8480")
    for host in (*foreign, "LOCALHOST", "localhost.:1", "127.0.0.1:1", "[::1]:8480", "[0:0:0:0:0:0:0:1]"):
        assert (await tablet.get("/board/state", host=host)).status == (400 if host in foreign else 200), host


async def test_a_request_without_a_host_gets_only_the_probes(tablet: Tablet):
    """An old load balancer's probe uses HTTP/1.0. In later versions a host is required."""
    for version, probes in (("1.0", {"/livez", "/readyz", "/metrics"}), ("1.1", set())):
        asked = f" HTTP/{version}\r\nConnection: close\r\n\r\n"
        answers = {path: answer_of(await sent(tablet.address, f"GET {path}{asked}".encode())) for path in EVERYWHERE}
        assert {path for path, answer in answers.items() if answer.status != 400} == probes
        assert all(header in answer.head for header in HEADERS for answer in answers.values())
    foreign = "GET http://127.0.0.1/board/state HTTP/1.1\r\nHost: evil.example"
    more = f"Cookie: {door.COOKIE}={tablet.cookie}\r\nConnection: close"
    for head in (foreign, "GET /board/state HTTP/1.1\r\nHost: localhost\r\nHost: x", "rubbish", "\x16\x03"):
        answer = answer_of(await sent(tablet.address, f"{head}\r\n{more}\r\n\r\n".encode()))
        assert (answer.status, [one for one in HEADERS if one not in answer.head]) == (400, [])
    assert answer_of(await sent(tablet.address, b"GET /livez HTTP/1.0\r\nHost:\r\n\r\n")).status == 400


async def test_garbage_after_an_answer_closes_the_connection_silently(tablet: Tablet, caplog):
    reader, writer = await asyncio.open_connection(*tablet.address)
    writer.write(b"DELETE /livez HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert b" 405 " in await reader.readuntil(b"\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"rubbish\r\n")
    assert b"HTTP" not in await rest_of(reader)
    writer.close()
    assert caplog.records == []


async def test_a_configured_host_name_is_accepted(shop: Shop):
    async with opened(shop, hosts=("kasa-pc", "192.168.1.10", "fd00::a")) as address:
        tablet = Tablet(address, shop.pair())
        for host in ("Kasa-PC:8480", "kasa-pc.", "192.168.1.10", "[fd00::a]:1", "[FD00:0::A]"):
            assert (await tablet.get("/board/state", host=host)).status == 200, host
        assert (await tablet.get("/board/state", host="192.168.1.11")).status == 400


FOREIGN = {
    "content_type": ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", None),
    "origin": (
        "null", None, "http://127.0.0.1:1", "http://127.0.0.1", "http://[", "http://evil.example", "ftp://{authority}",
        "http://user@{authority}", "http://{authority}/",
    ),
    "sec_fetch_site": ("cross-site", "same-site", ""),
}  # fmt: skip


@pytest.mark.parametrize("header", FOREIGN)
async def test_requests_that_a_foreign_page_could_send_are_refused(header, tablet: Tablet):
    for value in FOREIGN[header]:
        reported = value and value.format(authority=f"127.0.0.1:{tablet.address[1]}")
        for name in TOLD:
            answer = await tablet.post(name, {}, **{header: reported})
            assert answer.status in {403, 415} and answer.data["text"], value


async def test_our_own_page_is_recognized_by_origin_or_sec_fetch_site(tablet: Tablet):
    authority = f"127.0.0.1:{tablet.address[1]}"
    origins = [{"origin": f"{scheme}://{authority}"} for scheme in ("HTTP", "https")]  # https: a proxy before us
    fetches = [{"origin": None, "sec_fetch_site": site} for site in ("same-origin", "none")]
    for changes in ({}, {"content_type": "Application/JSON; charset=utf-8"}, *origins, *fetches):
        assert (await tablet.post("here", {}, **changes)).status == 200, changes


async def test_a_body_that_is_no_small_object_is_refused_with_a_sentence(tablet: Tablet):
    for body in (b"", b"{", b"[]", b"null", b"\xff", b"[" * 4000, b'{"a":' * 800, b"1" * 4096):
        for name in (*TOLD, "pair"):
            answer = await tablet.post(name, body)
            assert (answer.status, bool(answer.data["text"])) == (400, True), body[:8]
    assert (await tablet.post("act", b" " * 5000)).status == 413


async def test_a_chunked_body_has_the_same_limit_and_half_a_body_is_no_error(tablet: Tablet, caplog):
    head = tablet.raw("POST /board/here", b"", {"content_length": None, "transfer_encoding": "chunked"})
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    assert answer_of(await sent(tablet.address, head + chunk * 5)).status == 413
    _, writer = await asyncio.open_connection(*tablet.address)
    writer.write(tablet.raw("POST /board/here", b"{", {"content_length": "9"}))
    await writer.drain()
    writer.transport.abort()
    assert (await tablet.post("here", {})).status == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_every_answer_has_the_security_headers_and_no_cors_header(shop: Shop, tablet: Tablet):
    answers = [await tablet.get(path) for path in EVERYWHERE if path != "/board/stream"]
    answers += [await tablet.get("/board/state", method) for method in ("POST", "OPTIONS", "DELETE")]
    answers += [await tablet.get("/board/act"), await Tablet(tablet.address).get("/board/state")]
    answers += [await tablet.get("/", "OPTIONS", origin="http://evil.example", access_control_request_method="POST")]
    answers += [await tablet.get("/board/state", host="evil.example"), await tablet.post("act", b"")]
    answers.append(await tablet.post("pair", {"code": shop.database.write_now(a_code), "name": "x"}))
    assert {200, 400, 401, 404, 405} <= {answer.status for answer in answers}
    heads = [answer.head for answer in answers]
    assert [head for head in heads if "access-control-" in head or any(one not in head for one in HEADERS)] == []


def a_code(connection, role: str = ACT) -> str:
    return devices.new_code(connection, role, CLOCK.now())


async def test_a_code_makes_one_device_with_a_private_cookie(shop: Shop, address: Address):
    first = shop.database.write_now(a_code)
    code = shop.database.write_now(a_code)  # the first is void
    page = Tablet(address)
    if first != code:
        assert (await page.post("pair", {"code": first, "name": "x"})).status == 403
    answer = await page.post("pair", {"code": f" {code[:4]} {code[4:]}", "name": "  Tezgâh\t\x00\x1b[31m\u202e 1 "})
    assert answer.status == 200
    (message,) = [line for line in answer.head.splitlines() if line.startswith("set-cookie")]
    assert {"httponly", "samesite=strict", "path=/"} <= set(message.replace(" ", "").split(";"))
    assert "secure" not in message and (await page.post("pair", {"code": code, "name": "x"})).status == 403
    (device,) = shop.database.read_now(devices.listed)
    assert device["name"] == "Tezgâh [31m 1"
    stored = json.dumps([tuple(row) for row in shop.pos.execute("SELECT * FROM delivery_board_devices")])
    cookie = message.split("=", 1)[1].split(";")[0]
    assert len(cookie) >= 43 and cookie not in stored.lower()


async def test_fifty_concurrent_guesses_count_as_five_and_do_not_void_the_code(shop: Shop, address: Address):
    code = shop.database.write_now(a_code)
    wrong = [f"{(int(code) + n) % 10**8:08}" for n in range(1, 51)]
    page = Tablet(address)
    answers = await asyncio.gather(*(page.post("pair", {"code": one, "name": "x"}) for one in wrong))
    assert sorted(answer.status for answer in answers) == [403] * TRIES + [429] * (50 - TRIES)
    assert shop.database.read_now(devices.wrong_tries) == TRIES
    refused = await page.post("pair", {"code": code, "name": "x"})
    assert (refused.status, refused.data["error"]) == (429, "too_many_codes")
    assert (await Tablet(address, own="127.0.0.2").post("pair", {"code": code, "name": "x"})).status == 200
    assert (await page.post("pair", {"code": shop.database.write_now(a_code), "name": "x"})).status == 200


async def test_a_missing_name_is_refused_without_counting_a_try(shop: Shop, address: Address):
    code = shop.database.write_now(a_code)
    page = Tablet(address)
    for values in ({}, {"code": 1, "name": "x"}, *({"code": "1", "name": name} for name in ("", " \x00\n", ["x"]))):
        for _ in range(TRIES):
            assert (await page.post("pair", values)).status == 400
    assert (await page.post("pair", {"code": code, "name": "\ud800" + "x" * 300})).status == 200
    assert [one["name"] for one in shop.database.read_now(devices.listed)] == ["x" * devices.LONGEST_NAME]


async def test_a_read_only_device_may_not_act(shop: Shop, address: Address):
    reader = Tablet(address, shop.pair(LOOK))
    for name in ("state", "menu", "technician"):
        assert (await reader.get(f"/board/{name}")).status == 200
    assert (await reader.post("here", {"audible": True})).status == 200
    for name in ("act", "back", "seen"):
        assert (await reader.post(name, {"subjects": ["x"], "id": 1})).status == 403
    stranger = Tablet(address, "x" * 43)
    refused = [await stranger.get(f"/board/{name}") for name in ASKED] + [
        await stranger.post(name, {}) for name in TOLD
    ]
    assert {answer.status for answer in refused} == {401}


async def test_a_revoked_device_is_refused_at_once_and_its_stream_ends(shop: Shop, tablet: Tablet, caplog):
    async with tablet.stream() as ear, Tablet(tablet.address, shop.pair(name="Mutfak")).stream() as others:
        assert (await ear.news(), await others.news()) == ("changed", "changed")
        assert shop.database.write_now(lambda tx: devices.revoke(tx, "Kasa", CLOCK.now()))
        assert (await tablet.post("here", {"audible": True})).status == 401
        while await ear.news() is not None:
            pass
        assert await others.news() in {"changed", "beat"}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_the_last_use_of_a_device_is_written_at_intervals(shop: Shop, tablet: Tablet):
    def seen() -> object:
        return shop.database.read_now(devices.listed)[0]["seen_utc"]

    paired = seen()
    assert ((await tablet.post("here", {})).status, seen()) == (200, paired)
    shop.database.write_now(lambda tx: devices.note_seen(tx, "x", CLOCK.now()))
    shop.pos.execute("UPDATE delivery_board_devices SET seen_utc = '2020-01-01 00:00:00.000'")
    assert (await tablet.post("here", {})).status == 200 and seen() >= paired


async def test_a_customer_is_shown_only_on_request_and_of_an_open_order(shop: Shop, tablet: Tablet, capsys):
    put_order(shop.pos, **CUSTOMER)
    for name in ("state", "menu", "technician"):
        assert CANARY not in (await tablet.get(f"/board/{name}")).text
    shown = (await tablet.get(f"/board/customer?key={KEY}")).data
    assert shown["customer_phone"] == f"{CANARY} customer_phone" and "payload" not in shown
    for key in ("", "x", "%00", "%ff", KEY[:-1] + "f"):
        assert (await tablet.get(f"/board/customer?key={key}")).status == 404
    shop.pos.execute("UPDATE delivery_orders SET ended_utc = '2026-03-01 12:00:00.000', ended_by = 'completed'")
    assert (await tablet.get(f"/board/customer?key={KEY}")).status == 404
    assert CANARY not in capsys.readouterr().err


async def shows_customers(tablet: Tablet) -> bool:
    shown = await tablet.get(f"/board/customer?key={KEY}")
    is_shown = (await tablet.get("/board/state")).data["customers"]
    assert (shown.status, CANARY in shown.text) == ((200, True) if is_shown else (403, False))
    return bool(is_shown)


async def test_a_read_only_tablet_shows_customers_if_paired_so(shop: Shop, address: Address):
    put_order(shop.pos, **CUSTOMER)
    for role, is_shown, of_act in ((LOOK, False, 403), (LOOK_CUSTOMERS, True, 403), (ACT, True, 400)):
        tablet = Tablet(address, shop.pair(role))
        assert await shows_customers(tablet) is is_shown
        assert (await tablet.post("act", {})).status == of_act


async def test_without_encryption_customers_stay_on_this_machine_unless_allowed_by_name(shop: Shop):
    put_order(shop.pos, **CUSTOMER)
    beyond = {"listen": "0.0.0.0:0"}
    for changes, is_shown in ((beyond, False), (beyond | {"customers_unencrypted": True}, True), ({}, True)):
        async with opened(shop, hosts=("kasa",), **changes) as address:
            assert await shows_customers(Tablet(address, shop.pair())) is is_shown


async def test_a_waiting_daemon_answers_503(shop: Shop, tablet: Tablet):
    shop.works = False
    for name in ASKED:
        answer = await tablet.get(f"/board/{name}?language=en")
        assert answer.status == 503 and "ready" in answer.data["text"]
    assert (await tablet.post("act", {})).status == 503


async def test_without_a_database_known_devices_still_get_the_problems(shop: Shop, tablet: Tablet):
    shop.problems = [Problem(Code.DATABASE_LOST, "", CLOCK.now(), Severity.SEVERE)]
    assert (await tablet.get("/board/state")).status == 200
    shop.pos.execute("ALTER TABLE delivery_board_devices RENAME TO elsewhere")
    answer = await tablet.get("/board/state")
    assert (answer.status, [one["link"] for one in answer.data["problems"]]) == (503, ["database"])
    stranger = await Tablet(tablet.address, "x").get("/board/state")
    assert (stranger.status, stranger.data["problems"], answer.data["error"]) == (503, [], "no_database")
    for name in TOLD:
        tapped = await tablet.post(name, {"subjects": []})
        assert (tapped.status, tapped.data["error"]) == (503, "not_written")  # it is not repeated automatically
    shop.pos.execute("ALTER TABLE elsewhere RENAME TO delivery_board_devices")
    assert (await tablet.get("/board/state")).status == 200


async def test_a_silent_database_is_reported_to_the_page(shop: Shop, tablet: Tablet, monkeypatch):
    monkeypatch.setattr(pages, "WITHIN_S", 0.05)
    monkeypatch.setattr(shop.database, "read", lambda *_, **__: asyncio.Event().wait())
    answer = await tablet.get("/board/state")
    assert (answer.status, answer.data["error"]) == (503, "no_database")


async def test_a_page_that_is_open_learns_that_another_one_is_served(shop: Shop, monkeypatch):
    served = []
    for content in (b"1", b"1", b"2"):
        monkeypatch.setitem(shell.FILES, "bar.js", content)
        async with opened(shop) as address:
            served.append((await Tablet(address, shop.pair()).get("/board/state")).data["page"])
    assert served[0] == served[1] != served[2]
