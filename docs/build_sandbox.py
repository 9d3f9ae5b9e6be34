"""Writes the switches, presets, commands and faults of the sandbox into docs/sandbox.md.

    .venv/bin/python docs/build_sandbox.py

The page is written by hand. This program replaces the text between `<!-- made by docs/build_sandbox.py: NAME -->` and
`<!-- end -->`. tests/sandbox/test_sandbox_pages.py fails when the page is out of date.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

from orderbridge_sandbox.command import PREFIX
from orderbridge_sandbox.commands import COMMANDS
from orderbridge_sandbox.faults import Fault
from orderbridge_sandbox.options import GROUPS, PRESETS, SWITCHES
from orderbridge_sandbox.switches import switches_of, words

HERE = Path(__file__).parent
PAGE = HERE / "sandbox.md"
_MADE = re.compile(r"(<!-- made by docs/build_sandbox\.py: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_GROUPS = {
    "Pace": "Orders by themselves, and the clock",
    "Limits": "Limits",
    "Lists": "Lists",
    "Operations": "Operations",
    "Trouble": "Trouble with calls",
    "Connections": "The line",
}


def _value(value: object) -> str:
    if value is None:
        return "none"
    return (
        f"`{str(value).lower()}`"
        if isinstance(value, bool)
        else f"`{value:g}`"
        if isinstance(value, float)
        else f"`{value}`"
    )


def make_presets() -> Iterator[str]:
    for name, settings in PRESETS.items():
        set_to = ", ".join(f"`{key}={_plain(value)}`" for key, value in settings.items())
        yield f"- `{name}`: {words()['presets'][name]['en']} {set_to}"


def _plain(value: object) -> str:
    return _value(value).strip("`")


def make_switches() -> Iterator[str]:
    """The default stands first; of a switch that takes few values, these follow."""
    for group in GROUPS:
        yield f"\n### {_GROUPS[group.__name__]}\n"
        for one in (SWITCHES[name] for name in switches_of(group)):
            others = [f"`{value}`" for value in one.values if value != one.default]
            yield f"- `{one.name}` ({', '.join([_value(one.default), *others])}): {one.about['en']}"


def make_commands() -> Iterator[str]:
    """A field that was described before has its name only."""
    described: set[str] = set()
    for one in COMMANDS:
        parts = []
        for name, part in (one.parts or {}).items():
            needed, about = "needed" if part.is_needed else "", one.words[name]["en"]
            notes = "; ".join(filter(None, [needed, about if f"{name}: {about}" not in described else ""]))
            described.add(f"{name}: {about}")
            parts.append(f"`{name}` ({notes})" if notes else f"`{name}`")
        yield f"- `{one.method} {PREFIX}{one.path}`: {one.words['en']}"
        if parts:
            yield f"  {', '.join(parts)}."


def make_faults() -> Iterator[str]:
    defaults = {one.name: one.default for one in fields(Fault)} | {"body": "", "headers": "{}"}
    for name, sentence in words()["faults"].items():
        default = f" ({_value(defaults[name])})" if defaults[name] != "" else ""
        yield f"- `{name}`{default}: {sentence['en']}"


MAKERS: dict[str, Callable[[], Iterator[str]]] = {
    "presets": make_presets,
    "switches": make_switches,
    "commands": make_commands,
    "faults": make_faults,
}


def built(text: str) -> str:
    """The page with everything between its marks made anew."""
    return _MADE.sub(lambda part: part[1] + "\n".join(MAKERS[part[2]]()) + "\n" + part[3], text)


if __name__ == "__main__":
    PAGE.write_text(built(PAGE.read_text("utf-8")), "utf-8")
