"""Without a browser's driver its tests are skipped, not failed."""

import re
from pathlib import Path

BROWSER = Path(__file__).parent / "board" / "browser"


def test_one_place_alone_imports_what_drives_a_browser():
    """It skips first. Imports inside a function come after that anyway."""
    found = {
        path.name
        for path in BROWSER.glob("*.py")
        if re.search(r"^(?:from|import) playwright", path.read_text(), re.MULTILINE)
    }
    assert found == {"counter.py"}
