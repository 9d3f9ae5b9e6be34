"""One TLS context for all, and one empty database to copy."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fuzz.street import make_empty, tls

from orderbridge.marketplace import http


@pytest.fixture(autouse=True, scope="module")
def one_tls_context() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, "_tls_context", lambda _: tls())
        yield


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_empty(tmp_path_factory.mktemp("fuzz") / "empty.db")
