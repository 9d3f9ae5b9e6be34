import io
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from tests.observe.lines import Started

from orderbridge.observe import logs


@pytest.fixture
def start() -> Iterator[Started]:
    """Configures logging into a buffer, and restores everything afterwards."""
    root, chatty = logging.getLogger(), [logging.getLogger(name) for name in logs.CHATTY]
    before = root.handlers[:], root.level, [one.level for one in chatty]

    def start(form="json", level="info", stream: io.StringIO | None = None, **environ: str) -> io.StringIO:
        stream = stream or io.StringIO()
        logs.configure(level=level, format=form, stream=stream, environ=environ)
        return stream

    yield start
    root.handlers[:], root.level = before[0], before[1]
    for one, level in zip(chatty, before[2], strict=True):
        one.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def log() -> Any:
    return structlog.get_logger("orderbridge.test")
