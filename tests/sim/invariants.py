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
from tests.sim.about_orders import Cooldown, OnlyDelivered, StoredBeforeAcknowledged
from tests.sim.about_rows import LaneOrder, MayLeave, NothingTwice, RowsEnd
from tests.sim.about_trouble import NothingLeaks, OneHarmsItself, SilenceIsAnAlarm
from tests.sim.about_verdicts import Verdicts
from tests.sim.about_waits import LeavesSoon, TokensInTime, Waits
from tests.sim.invariant import Invariant
from tests.sim.truth import TruthInTheEnd


def all_invariants() -> list[Invariant]:
    """One of each, for one simulation."""
    return [
        StoredBeforeAcknowledged(),
        OnlyDelivered(),
        Cooldown(),
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
        NothingLeaks(),
        TruthInTheEnd(),
    ]
