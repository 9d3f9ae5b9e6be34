"""What is served, as the server sees it: the process, and the pages of extensions."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from orderbridge.observe.metrics import Metrics
from orderbridge.rules.account_status import Readiness

if TYPE_CHECKING:
    from starlette.routing import BaseRoute


class Pages(Protocol):
    """The routes that an extension adds."""

    @property
    def headers(self) -> Sequence[tuple[bytes, bytes]]:
        """Of every answer of the server."""

    def routes(self) -> "Sequence[BaseRoute]":
        """All of them."""

    def close(self) -> None:
        """The server closes: streams end."""


class Watched(Protocol):
    """The process: the daemon at work, or one that waits for another. No method asks the database or waits."""

    def hung(self) -> str | None:
        """What hangs, so that a restart would help; None: nothing does."""

    def readiness(self) -> Readiness:
        """Whether it does its work."""

    def measured(self) -> Metrics:
        """All numbers, those that are read included."""

    def pages(self) -> Sequence[Pages]:
        """Those of extensions that the configuration needs. Called in a thread, because it loads libraries."""
