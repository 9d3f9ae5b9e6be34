"""A command by hand, as root, leaves no file that the daemon cannot use."""

import os
from pathlib import Path

import pytest

from orderbridge.store import schema
from orderbridge.store.database import open_database


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files for others")
def test_a_new_file_belongs_to_the_owner_of_its_folder_and_one_that_is_there_keeps_its_owner(tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, 12346)
    for owner in (12345, 54321):
        database = open_database(f"sqlite:///{tmp_path / 'pos.db'}", inline=True)
        database.write_now(schema.upgrade)
        owners = {file.name: (file.stat().st_uid, file.stat().st_gid) for file in tmp_path.iterdir()}
        database.close()
        assert owners == dict.fromkeys(("pos.db", "pos.db-wal", "pos.db-shm"), (owner, 12346))
        os.chown(tmp_path / "pos.db", 54321, 12346)
