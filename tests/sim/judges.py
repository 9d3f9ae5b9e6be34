"""All judges, by promise."""

from tests.sim.about_columns import ColumnsAreRight
from tests.sim.about_end import AuditFindsNothing, JournalHolds, MarkIsNeverAhead, RetentionKeeps, TruthAtTheEnd
from tests.sim.about_fleet import EqualShares, OneActs, ReplacedCommitsNothing, TakenOver
from tests.sim.about_hands import ClosuresEnd, TapsAreRows
from tests.sim.about_orders import Cooldown, EachIsPolled, OnlyDelivered, StoredBeforeAcknowledged
from tests.sim.about_problems import ProblemsAreShown
from tests.sim.about_restores import OlderCopyIsReported, StoredAgain
from tests.sim.about_rows import LaneOrder, LookedUpFirst, MayBeSent, RowsEnd

from tests.sim.about_tables import (  # isort: skip
    AutoAccepts, ListsAreStored, PollsAreWritten, QuarantineCounts, ReferenceIsRead, ViewsAreRight,
)  # fmt: skip
from tests.sim.about_trouble import FailuresAreLogged, FaultsStayApart, NothingLeaks, ProblemsAreLogged
from tests.sim.about_verdicts import Verdicts
from tests.sim.about_waits import IsSentSoon, TokensInTime, Waits
from tests.sim.judge import Judge
from tests.sim.plan import Plan

# LaneOrder judges promise 5, and finds the row of each request, which the other judges need.
WATCHING: dict[str, tuple[type[Judge], ...]] = {
    "5": (LaneOrder,),
    "1": (StoredBeforeAcknowledged,),
    "1 and 7": (ListsAreStored,),
    "2": (OnlyDelivered, AuditFindsNothing),
    "3": (Cooldown, PollsAreWritten, EachIsPolled),
    "4": (RowsEnd, Waits, IsSentSoon, Verdicts, AuditFindsNothing),
    "6": (Verdicts, LookedUpFirst, MayBeSent, Waits, AuditFindsNothing),
    "7": (FaultsStayApart, QuarantineCounts),
    "8": (FailuresAreLogged, ProblemsAreLogged, ProblemsAreShown),
    "9": (NothingLeaks,),
    "login": (TokensInTime,),
    "contract": (ColumnsAreRight, AutoAccepts, ViewsAreRight, ReferenceIsRead, RetentionKeeps),
    "closures": (ClosuresEnd,),
    "board": (TapsAreRows,),
    "1, 2 and 6": (TruthAtTheEnd,),
    "fleet": (OneActs, EqualShares, TakenOver, ReplacedCommitsNothing),
    "journal": (JournalHolds,),
    "mark": (MarkIsNeverAhead,),
}


WATCHING_RESTORES = (
    *(OlderCopyIsReported, StoredAgain, OnlyDelivered, Cooldown, JournalHolds, NothingLeaks),
    AuditFindsNothing,
)


def watching(*promises: str) -> list[Judge]:
    return [judge() for judge in dict.fromkeys(one for promise in promises for one in WATCHING[promise])]


def judges_of(plan: Plan) -> list[Judge]:
    """The judges of this plan. Most expect that each account has its own cooldown."""
    if plan.kind == "fleet":
        promises = ("5", "1", "2", "fleet", "9", "1, 2 and 6")
        return [*watching(*promises), Cooldown(), RowsEnd(), LookedUpFirst(), MayBeSent()]
    if plan.kind == "restore":  # most of the others expect that committed rows stay
        return [judge() for judge in WATCHING_RESTORES]
    if plan.kind == "crowd":
        return [Cooldown(), EachIsPolled(), NothingLeaks(), AuditFindsNothing()]
    return watching(*(promise for promise in WATCHING if promise != "fleet"))
