"""The text of an error as a person reads it, for `pytest.raises(..., check=says(...))`; and the secrets in texts."""

import re
from collections.abc import Callable

from orderbridge import hiding
from orderbridge.texts import sentence


def says(pattern: str) -> Callable[[BaseException], bool]:
    return lambda error: re.search(pattern, sentence(error)) is not None


def forget_secrets() -> None:
    """Forget the secrets, as in a new process."""
    for known in (hiding._former, hiding._known, hiding._lengths):
        known.clear()
