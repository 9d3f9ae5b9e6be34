"""The docstring of each package with many modules lists each of them once."""

import importlib
from pathlib import Path

import pytest


@pytest.mark.parametrize("folder", ["jobs", "rules", "store"])
def test_the_map_of_a_folder_names_each_of_its_files_once(folder: str) -> None:
    package = importlib.import_module(f"orderbridge.{folder}")
    rows = [line.split("  ", 1) for line in (package.__doc__ or "").splitlines() if "  " in line]
    named = [word for _, words in rows for word in words.split()]
    there = {path.stem for path in Path(package.__path__[0]).glob("*.py")} - {"__init__"}
    folders = {path.parent.name for path in Path(package.__path__[0]).glob("*/__init__.py")}
    assert sorted(named) == sorted(there | folders)
