"""What is wrong with an order: the codes that its column `problem` lists, with commas between them."""

from collections.abc import Iterable

STATUS_DOUBTFUL = "status_doubtful"  # the service refused what its last shown status should allow
TOTAL_MISMATCH = "total_mismatch"  # the amounts do not add up
LATE = "late"  # it was ordered long before it came in, or its scheduled time was over
CONTENTS_OUTDATED = "contents_outdated"  # the database refuses newer contents than are stored


def codes_of(problem: str | None) -> list[str]:
    """The codes that an order's column `problem` lists."""
    return [code for code in (problem or "").split(",") if code]


def as_problem(codes: Iterable[str]) -> str | None:
    """Codes as that column lists them; None: nobody has to look."""
    return ",".join(codes) or None
