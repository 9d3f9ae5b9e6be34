"""Reads logged lines back."""

import io
import json
from collections.abc import Callable
from typing import Any

Started = Callable[..., io.StringIO]


def only(stream: io.StringIO) -> dict[str, Any]:
    (line,) = stream.getvalue().splitlines()
    return dict(json.loads(line))
