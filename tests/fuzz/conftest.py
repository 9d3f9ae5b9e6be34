"""One empty database, which is copied."""

from pathlib import Path

import pytest
from tests.fuzz.street import make_empty


@pytest.fixture(scope="session")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_empty(tmp_path_factory.mktemp("fuzz") / "empty.db")
