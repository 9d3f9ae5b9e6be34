"""What a layer of the configuration says, before it is checked: tables in tables, and the place of each value in them."""

from collections.abc import Iterator
from typing import Any

Tree = dict[str, Any]
Place = tuple[str, ...]  # ("accounts", "0", "name")


def leaves(tree: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Every value that is no table and no list, with its place."""
    children: Any = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if children is None:
        yield place, tree
        return
    for key, value in children:
        yield from leaves(value, (*place, str(key)))


def at(tree: Any, place: Place) -> Any:
    """What is there, or None."""
    for key in place:
        tree = tree.get(key) if isinstance(tree, dict) else None
    return tree


def dotted(place: Place) -> str:
    """The way a person writes it: accounts[0].name."""
    return "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in place).lstrip(".")
