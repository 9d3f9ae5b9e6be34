"""The board: what the restaurant sees and hears of its orders, and what it taps. Imported where `[web] board` is on."""

from typing import TYPE_CHECKING, ClassVar

from orderbridge.extension import Extension
from orderbridge.texts import SENTENCES

if TYPE_CHECKING:
    from orderbridge.daemon import RunningDaemon
    from orderbridge_board.pages import BoardPages
    from orderbridge_board.watch import Audience

SENTENCES.add(__name__)


class Board(Extension):
    """The board of one process."""

    commands: ClassVar = {"board": "orderbridge_board.cli"}
    daemon: "RunningDaemon | None" = None  # the one at work
    audience: "Audience"  # its tablets; set with `daemon`

    def begin(self, daemon: "RunningDaemon") -> None:
        """Check for tablets, and count polls."""
        from orderbridge_board.watch import Audience, BoardWatch  # noqa: PLC0415 - the command needs none of it

        self.daemon, self.audience = daemon, Audience(daemon.clock.monotonic())
        BoardWatch(daemon, self.audience).begin()

    def end(self) -> None:
        """Pages say that no daemon works."""
        self.daemon = None

    def pages(self) -> "BoardPages":
        """All routes below `/`."""
        from orderbridge_board.pages import BoardPages  # noqa: PLC0415 - loads Starlette

        return BoardPages(self)
