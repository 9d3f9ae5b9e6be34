"""The revisions of the schema, by the names of their migrations (a test holds the two equal): Alembic is not loaded."""

from importlib.resources import files
from pathlib import Path


def _migrations() -> Path:
    """In a wheel the migrations lie inside the package, in a checkout beside src."""
    packaged = Path(str(files("orderbridge") / "migrations"))
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


MIGRATIONS = _migrations()
KNOWN = tuple(sorted(path.name[:4] for path in (MIGRATIONS / "versions").glob("[0-9][0-9][0-9][0-9]_*.py")))
HEAD = KNOWN[-1]
UNRELEASED = tuple(f"000{number}" for number in range(1, 9))  # of before the first release: read, never upgraded
