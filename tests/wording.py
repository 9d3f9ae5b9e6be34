"""The text of an error as a person reads it, for `pytest.raises(..., check=says(...))`."""

import re
from collections.abc import Callable

from orderbridge.texts import sentence


def says(pattern: str) -> Callable[[BaseException], bool]:
    """Whether the sentence matches."""
    return lambda error: re.search(pattern, sentence(error)) is not None
