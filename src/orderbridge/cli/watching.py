"""`--watch`: the same screen again and again; without a terminal, what has changed."""

import shutil
import sys
import time
from collections.abc import Callable
from datetime import datetime

import click

from orderbridge.clock import SystemClock

EVERY_S = 2.0
HOME = "\x1b[H\x1b[2J"


def watch(look: Callable[[], tuple[bool, list[str]]], pause: Callable[[float], None] = time.sleep) -> int:
    """Until Ctrl-C. `look`: whether all is well, and the screen. Returns the exit code: 1 when something is wrong."""
    is_well, before = True, None
    try:
        while True:
            is_well, shown = look()
            if sys.stdout.isatty():
                click.echo(HOME, nl=False, file=sys.__stdout__)  # which is not guarded
                click.echo("\n".join(_fitting(shown)), nl=False)
            elif (news := _steady(shown)) != before:
                now: datetime = SystemClock().now()
                click.echo("\n".join([f"--- {now.astimezone():%Y-%m-%d %H:%M:%S}", *shown]))
                before = news
            sys.stdout.flush()
            pause(EVERY_S)
    except KeyboardInterrupt:
        click.echo()
    return 0 if is_well else 1


def _fitting(shown: list[str]) -> list[str]:
    """No more lines than the terminal has: else the first ones, the worst, would be scrolled away."""
    rows = max(shutil.get_terminal_size().lines - 1, 2)
    return shown if len(shown) <= rows else [*shown[: rows - 1], "…"]


def _steady(shown: list[str]) -> list[str]:
    """Without digits: that time goes by is no change."""
    return ["".join(letter for letter in line if not letter.isdigit()).strip() for line in shown]
