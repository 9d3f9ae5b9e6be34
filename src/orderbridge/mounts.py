"""Finds out how a file is mounted: on a network file system, or as a mount point of its own.

Both can damage a SQLite database. Its WAL uses memory that the processes of one machine share, so several machines on a
network file system overwrite each other's changes silently. And a file that is mounted alone has a separate -wal at
each mount point, and keeps its inode when it is replaced outside.

mountinfo names the kind of a file system; statfs has only numbers, and one number for all of FUSE.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")  # as seen by this process, also in a container
NETWORK = re.compile(
    "nfs4?|cifs|smb[23]|smbfs|ncp|ncpfs|9p|afs|auristorfs|coda|ceph|glusterfs|lustre|beegfs|fhgfs|gpfs|panfs|pvfs2"
    "|orangefs|gfs2|ocfs2|davfs|vboxsf|vmhgfs|prl_fs"
)
# These FUSE file systems show a local disk; all others may be remote.
LOCAL_FUSE = re.compile(r"fuse\.(fuse-overlayfs|overlayfs|mergerfs|bindfs|gocryptfs|encfs|unionfs|unionfs-fuse)")


def network_kind(path: str) -> str | None:
    """The kind of the file system if it is a network's ("nfs4", "fuse.sshfs"), else None. The file may be missing."""
    kind = _kind_of(os.path.realpath(path))
    if kind is None:
        return None
    is_fuse = kind == "fuse" or kind.startswith("fuse.")
    return kind if NETWORK.fullmatch(kind) or (is_fuse and not LOCAL_FUSE.fullmatch(kind)) else None


def is_mounted_alone(path: str) -> bool:
    """Whether the file itself is a mount point, at this or another path of this machine."""
    real = os.path.realpath(path)
    try:
        found = os.stat(real)  # noqa: PTH116 - as mountinfo names it
    except OSError:
        return False
    device = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"
    for one in _mounts():
        with suppress(OSError):  # a place that this process may not see
            if one.place == real or (one.device == device and os.path.samefile(real, one.place)):  # noqa: PTH121
                return True
    return False


def _kind_of(path: str) -> str | None:
    """The kind of the mount that covers the path; of two at one place, the later."""
    found, depth = None, -1
    for one in _mounts():
        place = one.place.rstrip("/")
        if (path == place or path.startswith(f"{place}/")) and len(place) >= depth:
            found, depth = one.kind, len(place)
    return found


class _Mount(NamedTuple):
    device: str
    place: str
    kind: str


def _mounts() -> list[_Mount]:
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:  # no Linux, or no /proc: unknown
        return []
    split = [(mount.split(" "), source.split(" ")) for mount, _, source in (line.partition(" - ") for line in lines)]
    return [_Mount(mount[2], _unescaped(mount[4]), source[0]) for mount, source in split]


def _unescaped(place: str) -> str:
    """Decode octal escapes, such as those of spaces."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place)


# ---- new files -------------------------------------------------------------------------------------------------------


def give_to_owner_of(folder: Path, made: Path | int) -> None:
    """Give a file that root created (path or descriptor) to the folder's owner, so that the daemon can use it."""
    if os.geteuid() == 0:
        around = folder.stat()
        os.chown(made, around.st_uid, around.st_gid)


def sync_folder(folder: Path) -> None:
    """Flush the folder, so that the names of its files are on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
