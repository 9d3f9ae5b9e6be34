"""A command by hand, as root, leaves no file that the daemon cannot use."""

import os
from pathlib import Path

import pytest

from orderbridge.store import schema
from orderbridge.store.database import open_database


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_a_new_file_belongs_to_whom_its_folder_belongs(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)
    database = open_database(f"sqlite:///{tmp_path / 'pos.db'}", inline=True)
    database.write_now(schema.upgrade)
    owners = {file.name: (file.stat().st_uid, file.stat().st_gid) for file in tmp_path.iterdir()}
    database.close()
    assert owners == dict.fromkeys(("pos.db", "pos.db-wal", "pos.db-shm"), (12345, 12346))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_a_file_that_is_there_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "pos.db"
    path.touch()
    os.chown(path, 12345, 12346)
    open_database(f"sqlite:///{path}", inline=True).close()
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)
