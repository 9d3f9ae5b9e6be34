"""A till that runs during a certification."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from tests.certify.shop import Shop


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Callable[..., Shop]]:
    """Makes a shop with a till of the given fault; it is closed at the end."""
    with ExitStack() as stack:
        numbers = count()
        yield lambda fault="none", url=None: stack.enter_context(
            Shop(tmp_path / f"{fault}-{next(numbers)}", fault, url)
        )
