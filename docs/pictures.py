"""Makes the screenshots of the board: docs/board-tr.png, board-en.png, and status-tr.png, status-en.png.

    ./run test browser --co -q                # brings what drives the browser
    .venv/bin/python docs/pictures.py

The sandbox plays the service, a daemon of its own serves the board, and Debian's Chromium shows it. The orders are the
same each time.
"""

import asyncio
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

from playwright.async_api import Page, async_playwright

sys.path.insert(0, str(Path(__file__).parent.parent))

