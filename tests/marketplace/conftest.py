"""Shared by the tests of the client: no proxy, certificates, and a sample order."""

from pathlib import Path

import pytest
from tests.marketplace.servers import Certificates, make_certificates


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own proxy settings must not reach a test."""
    for name in ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority of our own and certificates for 127.0.0.1, good and bad."""
    return make_certificates(Path(tmp_path_factory.mktemp("tls")))
