"""For whom a request is meant is told by its Host: a page with a name of its own is none of ours."""

import pytest

from orderbridge.web.routes import is_known

NAMES = {"kasa-pc", "127.0.0.1"}


@pytest.mark.parametrize(
    "host",
    [
        None,  # HTTP/1.0: a load balancer's check, and no browser
        "127.0.0.1",
        "127.0.0.1:8480",
        "localhost",
        "LOCALHOST:8480",
        "localhost.",
        "[::1]",
        "[::1]:8480",
        "192.168.1.20:8480",
        "kasa-pc",
        "Kasa-PC:8480",
    ],
)
def test_ours(host: str | None) -> None:
    assert is_known(host, NAMES)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:8480",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "kasa-pc.evil",
        "::1]:",
        *[
            "127.0.0.1@evil.example",
            "[evil.example]:80",
            "localhost:evil",
            "a" * 5000,
            "127.0.0.1:8480:1",
            "1",
            "0x7f.1",
        ],
    ],
)
def test_none_of_ours(host: str) -> None:
    assert not is_known(host, NAMES)
