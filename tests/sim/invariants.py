"""All that watches a simulation."""

from tests.sim.about_books import (
    AnswersAreTakenIn,
    AutoAccepts,
    ListsAreRead,
    PollsAreNoted,
    QuarantineCounts,
    TillsSeeWhatIsSo,
)
from tests.sim.about_columns import ColumnsSayWhatIsSo
from tests.sim.about_health import HealthSaysWhatIsSo
from tests.sim.about_orders import Cooldown, InTurn, NoneStarves, OnlyDelivered, StoredBeforeAcknowledged
from tests.sim.about_rows import LaneOrder, MayLeave, NothingTwice, RowsEnd
from tests.sim.about_trouble import NothingLeaks, OneHarmsItself, SilenceIsAnAlarm
from tests.sim.about_verdicts import Verdicts
from tests.sim.about_waits import LeavesSoon, TokensInTime, Waits
from tests.sim.invariant import Invariant
from tests.sim.plan import Plan
from tests.sim.truth import TruthInTheEnd


def invariants_of(plan: Plan) -> list[Invariant]:
    """What watches this plan: most of all wants accounts with a cooldown each."""
    return [Cooldown(), InTurn(), NothingLeaks()] if plan.kind == "crowd" else all_invariants()


def all_invariants() -> list[Invariant]:
    """One of each, for one simulation."""
    return [
        StoredBeforeAcknowledged(),
        OnlyDelivered(),
        Cooldown(),
        NoneStarves(),
        ColumnsSayWhatIsSo(),
        AnswersAreTakenIn(),
        QuarantineCounts(),
        PollsAreNoted(),
        AutoAccepts(),
        TillsSeeWhatIsSo(),
        ListsAreRead(),
        LaneOrder(),  # it finds out which row a request is for
        RowsEnd(),
        NothingTwice(),
        MayLeave(),
        Waits(),
        LeavesSoon(),
        Verdicts(),
        TokensInTime(),
        OneHarmsItself(),
        SilenceIsAnAlarm(),
        HealthSaysWhatIsSo(),
        NothingLeaks(),
        TruthInTheEnd(),
    ]
