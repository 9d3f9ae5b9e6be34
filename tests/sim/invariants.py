"""All invariants, by promise."""

from tests.sim.about_audit import AuditFindsNothing
from tests.sim.about_books import (
    AnswersAreTakenIn,
    AutoAccepts,
    ListsAreRead,
    PollsAreNoted,
    QuarantineCounts,
    TillsSeeWhatIsSo,
)
from tests.sim.about_columns import ColumnsSayWhatIsSo
from tests.sim.about_files import JournalHolds, MarkIsBehind
from tests.sim.about_fleet import EqualShares, OneActs, TakenOver, TheReplacedIsSilent
from tests.sim.about_hands import BoardKeepsItsWord, ClosuresEnd
from tests.sim.about_health import HealthSaysWhatIsSo
from tests.sim.about_orders import Cooldown, NoneStarves, OnlyDelivered, StoredBeforeAcknowledged
from tests.sim.about_restores import AnOlderCopyIsTold, StoredAgain
from tests.sim.about_rows import LaneOrder, MayLeave, NothingTwice, RowsEnd
from tests.sim.about_trouble import NothingLeaks, OneHarmsItself, SilenceIsAnAlarm
from tests.sim.about_verdicts import Verdicts
from tests.sim.about_waits import LeavesSoon, TokensInTime, Waits
from tests.sim.invariant import Invariant
from tests.sim.plan import Plan
from tests.sim.truth import TruthInTheEnd

# LaneOrder finds promise 5 broken, and which row a request is for: the others ask that.
WATCHING: dict[str, tuple[type[Invariant], ...]] = {
    "5": (LaneOrder,),
    "1": (StoredBeforeAcknowledged,),
    "1 and 7": (AnswersAreTakenIn,),
    "2": (OnlyDelivered,),
    "3": (Cooldown, PollsAreNoted, NoneStarves),
    "4": (RowsEnd, Waits, LeavesSoon, Verdicts),
    "6": (Verdicts, NothingTwice, MayLeave, Waits),
    "7": (OneHarmsItself, QuarantineCounts),
    "8": (SilenceIsAnAlarm, HealthSaysWhatIsSo),
    "9": (NothingLeaks,),
    "login": (TokensInTime,),
    "contract": (ColumnsSayWhatIsSo, AutoAccepts, TillsSeeWhatIsSo, ListsAreRead),
    "closures": (ClosuresEnd,),
    "board": (BoardKeepsItsWord,),
    "1, 2 and 6": (TruthInTheEnd,),
    "audit": (AuditFindsNothing,),
    "fleet": (OneActs, EqualShares, TakenOver, TheReplacedIsSilent),
    "journal": (JournalHolds,),
    "mark": (MarkIsBehind,),
}


WATCHING_RESTORES = (AnOlderCopyIsTold, StoredAgain, OnlyDelivered, Cooldown, JournalHolds, NothingLeaks)


def watching(*promises: str) -> list[Invariant]:
    """New judges of these promises, for one simulation."""
    return [invariant() for invariant in dict.fromkeys(one for promise in promises for one in WATCHING[promise])]


def invariants_of(plan: Plan) -> list[Invariant]:
    """The judges of this plan. Most expect that each account has its own cooldown."""
    if plan.kind == "fleet":
        promises = ("5", "1", "2", "fleet", "9", "1, 2 and 6", "audit")
        return [*watching(*promises), Cooldown(), RowsEnd(), NothingTwice(), MayLeave()]
    if plan.kind == "restore":  # most of the others expect that committed rows stay
        return [invariant() for invariant in WATCHING_RESTORES]
    if plan.kind == "crowd":
        return [Cooldown(), NoneStarves(), NothingLeaks()]
    return watching(*(promise for promise in WATCHING if promise != "fleet"))
