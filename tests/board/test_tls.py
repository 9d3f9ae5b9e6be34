"""The board with its own certificate: what it may show then, and what happens when the certificate changes."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs
from tests.board.tablets import CLOCK, Answer, Shop, Tablet, answer_of, web
from tests.store.samples import KEY, put_order
from tests.web.asking import rest_of, running, until

from orderbridge.cli import bundle
from orderbridge.cli.check import Checked
from orderbridge.cli.common import Context
from orderbridge.cli.probes import certificate
from orderbridge.config import Settings, Web
from orderbridge.rules.problems import page_problems
from orderbridge.web.listening import Listening
from orderbridge_board import devices
from orderbridge_sandbox.options import Line
from orderbridge_sandbox.tls import Certificates, make_certificates


@pytest.fixture
def made(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


def encrypted(file: Path) -> Web:
    return web(listen="0.0.0.0:0", hosts=("127.0.0.1",), certificate=file, certificate_key=file)


@pytest.fixture
async def listening(shop: Shop, made: Certificates) -> AsyncIterator[Listening]:
    shop.web = encrypted(made.server_file)
    listening = Listening(shop, shop.web)
    async with running(listening):
        await until(lambda: listening.addresses)
        yield listening


async def asked(listening: Listening, made: Certificates, line: str, cookie: str = "", body: bytes = b"") -> Answer:
    address = ("127.0.0.1", listening.addresses[0][1])
    trusted = ssl.create_default_context(cafile=made.ca_file)
    reader, writer = await asyncio.open_connection(*address, ssl=trusted, server_hostname="127.0.0.1")
    writer.write(Tablet(address, cookie).raw(line, body, {"origin": f"https://127.0.0.1:{address[1]}"}))
    answer = answer_of(await rest_of(reader))
    writer.close()
    return answer


async def test_an_encrypted_board_shows_customers_and_has_a_secure_cookie(shop, made, listening):
    put_order(shop.pos, customer_name="Ayşe")
    code = shop.database.write_now(lambda tx: devices.new_code(tx, devices.ACT, CLOCK.now()))
    paired = await asked(listening, made, "POST /board/pair", body=f'{{"code": "{code}", "name": "Kasa"}}'.encode())
    assert paired.status == 200 and "; secure" in paired.head
    assert (await asked(listening, made, f"GET /board/customer?key={KEY}", shop.pair())).data["customer_name"] == "Ayşe"


async def test_the_support_bundle_has_the_figures_of_an_encrypted_board(shop, listening):
    """They are read at an address that is no allowed host, whatever name the certificate has."""
    served = shop.web.model_copy(update={"listen": f"0.0.0.0:{listening.addresses[0][1]}"})
    context = SimpleNamespace(settings=SimpleNamespace(web=served))
    assert "orderbridge_build_info" in await asyncio.to_thread(bundle._metrics, context)


async def test_a_bad_certificate_leaves_the_old_one_and_a_good_one_is_taken_at_a_reload(made, listening, tmp_path):
    other, head = tmp_path / "other.pem", "-----BEGIN CERTIFICATE"
    first = made.server_file.read_text().partition(head)
    renewed = make_certificates(tmp_path).server_file.read_text()
    with capture_logs() as lines:

        def reported(event: str) -> int:
            return sum(line["event"] == event for line in lines)

        for number, bad in enumerate(("rubbish", first[0] + "".join(renewed.partition(head)[1:])), 1):
            other.write_text(bad)
            listening.use(encrypted(other))
            await until(lambda number=number: reported("web.certificate_refused") == number)
            assert problems_of(listening) == [("certificate_refused", "warning")]
            assert (await asked(listening, made, "GET /livez")).text == "alive\n"
        listening.use(encrypted(make_certificates(tmp_path / "x", line=Line.EXPIRED).server_file))
        await until(lambda: problems_of(listening) == [("certificate_ends", "severe")])
        with pytest.raises(ssl.SSLCertVerificationError):
            await asked(listening, made, "GET /livez")
        other.write_text(renewed)
        listening.use(encrypted(other))
        async with asyncio.timeout(60):
            while not await works(listening, made):  # noqa: ASYNC110 - a thread reads it
                await asyncio.sleep(0.01)
        assert not reported("web.not_listening")
        await until(lambda: problems_of(listening) == [])


@pytest.mark.parametrize("bad", ["rubbish", None])
async def test_an_unusable_certificate_at_the_start_is_reported(bad, shop, tmp_path: Path):
    """Any fault of the certificate, even an unreadable file, is reported as the certificate's, not as the address's."""
    file = tmp_path / "board.pem"
    if bad is not None:
        file.write_text(bad)
    listening = Listening(shop, encrypted(file))
    async with running(listening):
        await until(lambda: problems_of(listening))
        since = listening.page.since
        assert problems_of(listening) == [("certificate_refused", "severe")]
        file.write_text(make_certificates(tmp_path).server_file.read_text())
        listening.use(encrypted(file))
        await until(lambda: problems_of(listening) == [])
        assert since is not None and listening.page.since is None and len(listening.addresses) == 1


def problems_of(listening: Listening) -> list[tuple[str, str]]:
    return [(one.code, one.severity) for one in page_problems(listening.page, CLOCK.now())]


async def works(listening: Listening, made: Certificates) -> bool:
    try:
        return (await asked(listening, made, "GET /livez")).status == 200
    except (ssl.SSLError, ConnectionError):  # the old one, or the one that is just being closed
        return False


def checked(wanted: Web) -> Checked:
    return Checked(Context(), Settings.model_construct(web=wanted))


@pytest.mark.parametrize("expired, level", [(False, "ok"), (True, "warning")])
def test_check_says_until_when_the_certificate_is_valid(expired, level, tmp_path: Path):
    line = Line.EXPIRED if expired else Line.GOOD
    good = encrypted(make_certificates(tmp_path, line=line).server_file)
    (tmp_path / "bad.pem").write_text("rubbish")
    found = [one for wanted in (web(), good, encrypted(tmp_path / "bad.pem")) for one in certificate(checked(wanted))]
    assert [one.level for one in found] == [level, "failed"]
    assert all(one.remedy or one.level == "ok" for one in found)
