"""Network file systems are recognized by the names that the system gives them."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.wording import says

from orderbridge import mounts
from orderbridge.errors import Unusable
from orderbridge.mounts import network_kind
from orderbridge.store.database import Database, open_database

LOCAL = ["ext4", "xfs", "btrfs", "zfs", "overlay", "tmpfs", "fuseblk", "fuse.fuse-overlayfs", "vfat", "virtiofs"]
REMOTE = ["nfs", "nfs4", "cifs", "smb3", "9p", "afs", "ceph", "glusterfs", "fuse", "fuse.sshfs", "fuse.glusterfs"]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a space in its name."""
    (tmp_path / "the pos").mkdir()
    return tmp_path / "the pos"


def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *entries: tuple[object, str]) -> None:
    lines = [
        f"{30 + number} 1 0:{number} / {str(place).replace(' ', chr(92) + '040')} rw,relatime shared:1 - {kind} from rw"
        for number, (place, kind) in enumerate(entries)
    ]
    (tmp_path / "mountinfo").write_text("\n".join(lines) + "\n")
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "mountinfo")


def test_a_file_on_a_network_file_system_is_refused_before_it_is_touched(place: Path, tmp_path: Path, monkeypatch):
    for kind in REMOTE:
        mounted(tmp_path, monkeypatch, ("/", "ext4"), (place, kind))
        with pytest.raises(Unusable, check=says(rf"network file system \({kind}\).*local disk")):
            open_database(f"sqlite:///{place}/pos.db", inline=True)
    assert list(place.iterdir()) == []
    for kind in LOCAL:
        mounted(tmp_path, monkeypatch, ("/", "nfs4"), (place, kind))
        Database(f"sqlite:///{place}/pos.db", inline=True).close()


def test_the_nearest_mount_decides_and_of_two_at_one_place_the_later(place: Path, tmp_path: Path, monkeypatch):
    inner = place / "inner"
    mounted(tmp_path, monkeypatch, (place, "nfs4"), ("/", "ext4"), (inner, "autofs"), (inner, "ext4"))
    (tmp_path / "link.db").symlink_to(place / "pos.db")
    assert network_kind(str(place / "pos.db")) == network_kind(str(tmp_path / "link.db")) == "nfs4"
    assert (network_kind(str(inner / "pos.db")), network_kind(f"{place}-2/pos.db")) == (None, None)
    monkeypatch.setattr(mounts, "MOUNTS", tmp_path / "none")
    assert network_kind(str(place / "pos.db")) is None, "the system says nothing"


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Path]:
    """A database that is mounted as a file, at another place."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount it")
    source, target = tmp_path / "source.db", tmp_path / "target" / "pos.db"
    target.parent.mkdir()
    Database(f"sqlite:///{source}", inline=True).close()
    target.touch()
    done = subprocess.run(["mount", "--bind", source, target], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.decode()}")
    yield target
    subprocess.run(["umount", target], check=True)


def test_a_file_that_is_a_mount_point_is_refused_at_both_paths(alone: Path, tmp_path: Path):
    (tmp_path / "link.db").symlink_to(alone)
    for path in (alone, tmp_path / "source.db", tmp_path / "link.db"):
        with pytest.raises(Unusable, check=says("mounted without its folder")):
            Database(f"sqlite:///{path}", inline=True)


def test_a_file_with_two_hard_links_is_refused_and_a_symbolic_link_is_accepted(tmp_path: Path):
    path, link, other = (tmp_path / name for name in ("pos.db", "link.db", "other.db"))
    link.symlink_to(path)
    for one in (path, link):
        Database(f"sqlite:///{one}", inline=True).close()
    other.hardlink_to(path)
    for one in (path, link, other):
        with pytest.raises(Unusable, check=says("hard link")):
            Database(f"sqlite:///{one}", inline=True)
