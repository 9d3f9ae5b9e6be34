"""The board: a web page with the restaurant's orders, sounds and buttons. Imported only if `[web] board` is on."""

from typing import TYPE_CHECKING, ClassVar

from orderbridge.extension import Extension
from orderbridge.texts import SENTENCES

if TYPE_CHECKING:
    from orderbridge.daemon import RunningDaemon
    from orderbridge_board.pages import BoardPages
    from orderbridge_board.watch import AudibleTablets

SENTENCES.add(__name__)


class Board(Extension):
    """The board in one process."""

    commands: ClassVar = {"board": "orderbridge_board.cli"}
    daemon: "RunningDaemon | None" = None  # None: none is working
    audible_tablets: "AudibleTablets"  # set with `daemon`

    def begin(self, daemon: "RunningDaemon") -> None:
        """Begin to watch the tablets and to count polls."""
        from orderbridge_board.watch import AudibleTablets, BoardWatch  # noqa: PLC0415 - the command needs none of it

        self.daemon, self.audible_tablets = daemon, AudibleTablets(daemon.clock.monotonic())
        BoardWatch(daemon, self.audible_tablets).begin()

    def end(self) -> None:
        """From now on the pages show that no daemon is working."""
        self.daemon = None

    def pages(self) -> "BoardPages":
        """The board's routes, below `/`."""
        from orderbridge_board.pages import BoardPages  # noqa: PLC0415 - loads Starlette

        return BoardPages(self)
