"""What the next get-current asks for: the whole list, or one status after the other while the whole does not come in.

A list that is too large, or too slow once it has begun, would be asked for in vain for ever: what it holds is never
acknowledged, so it never shrinks. Asked for by status, its orders come in part by part and stay away from then on. What
such a part lacks proves nothing. A list that is full of documents that cannot be acknowledged hides what stands behind
them: after each such list one status is asked for alone.
"""

from dataclasses import dataclass

from orderbridge.errors import MarketplaceError, ServiceFailed, UnknownOutcome
from orderbridge.model import CANCELED
from orderbridge.rules.statuses import Statuses

TOO_LARGE = "body_too_large"
TOO_SLOW = "timeout"


@dataclass(frozen=True, slots=True)
class ListRequest:
    """`left`: statuses still to be asked for one by one; none: the whole list. `rounds`: begun since it came in.

    `behind`: statuses asked for since the whole list is full.
    """

    left: tuple[int, ...] = ()
    rounds: int = 0
    behind: int = 0

    @property
    def status_id(self) -> int | None:
        """What to ask for next; None: the whole list."""
        return self.left[0] if self.left else None

    def answered(self) -> "ListRequest":
        """After a list that was taken in: the next status, after the last one the whole. A whole list ends it."""
        return ListRequest(self.left[1:], self.rounds, self.behind) if self.left else ListRequest()

    def full(self, statuses: Statuses) -> "ListRequest":
        """After a whole list that is full of what cannot be acknowledged: one status, then the whole list again."""
        return ListRequest((statuses.active[self.behind % len(statuses.active)],), 0, self.behind + 1)

    def failed(self, error: MarketplaceError, statuses: Statuses) -> "ListRequest":
        """After a request that ended in an error. A status that does not come in does not keep the others waiting."""
        if self.left:
            passes = isinstance(error, UnknownOutcome | ServiceFailed)
            return ListRequest(self.left[1:], self.rounds, self.behind) if passes else self
        if not came_in_part(error):
            return self
        # Cancelled orders are not active; they may be what fills the list all the same.
        wanted = statuses.active if self.rounds == 0 else (*statuses.active, CANCELED)
        return ListRequest(wanted, self.rounds + 1)


def came_in_part(error: MarketplaceError) -> bool:
    """Whether an answer was there, and more than could be read."""
    return error.code == TOO_LARGE or (error.code == TOO_SLOW and error.began)
