from pathlib import Path

import pytest
from tests.config.documents import Write, document

from orderbridge.config import loading


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory and no system file: a test never meets the machine's own configuration."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(loading, "SYSTEM_FILE", tmp_path / "etc" / "config.toml")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a configuration, by default a good one, readable by its owner alone."""

    def write(text: str | None = None, name: str = "orderbridge.toml") -> Path:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(document() if text is None else text, "utf-8")
        file.chmod(0o600)
        return file

    return write
