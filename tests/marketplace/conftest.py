"""Certificates for the tests of the client."""

from pathlib import Path

import pytest
from tests.marketplace.servers import Certificates, make_certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority of our own and certificates for 127.0.0.1, good and bad."""
    return make_certificates(Path(tmp_path_factory.mktemp("tls")))
