"""What the system knows of a file: where it is mounted, on which kind of file system, and who owns its folder.

SQLite's WAL is memory shared by processes of one machine.

Where the files of several machines meet, each has its own idea of that memory and of the locks, and the file is damaged
without a word. The system tells the kind by its name; statfs has only numbers, and one for all of FUSE.

A file that is mounted alone has a -wal of its own at each of its places, and its inode stays when it is replaced
outside.
"""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")  # as this process sees them, in a container, too
NETWORK = re.compile(
    "nfs4?|cifs|smb[23]|smbfs|ncp|ncpfs|9p|afs|auristorfs|coda|ceph|glusterfs|lustre|beegfs|fhgfs|gpfs|panfs|pvfs2"
    "|orangefs|gfs2|ocfs2|davfs|vboxsf|vmhgfs|prl_fs"
)
# Of FUSE any may be remote but these, which only show a local disk in another way.
LOCAL_FUSE = re.compile(r"fuse\.(fuse-overlayfs|overlayfs|mergerfs|bindfs|gocryptfs|encfs|unionfs|unionfs-fuse)")


def network_kind(path: str) -> str | None:
    """The file system's kind when it is one of a network ("nfs4", "fuse.sshfs"), else None. The file may be missing."""
    kind = _kind_of(os.path.realpath(path))
    if kind is None:
        return None
    is_fuse = kind == "fuse" or kind.startswith("fuse.")
    return kind if NETWORK.fullmatch(kind) or (is_fuse and not LOCAL_FUSE.fullmatch(kind)) else None


def is_mounted_alone(path: str) -> bool:
    """Whether the file itself is a mount point, here or at another place of this machine's."""
    real = os.path.realpath(path)
    try:
        found = os.stat(real)  # noqa: PTH116 - as mountinfo names it
    except OSError:
        return False
    device = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"
    for one in _mounts():
        with suppress(OSError):  # a place that this process may not see
            if one.place == real or (one.device == device and os.path.samestat(found, os.stat(one.place))):  # noqa: PTH116
                return True
    return False


def _kind_of(path: str) -> str | None:
    """Of the mount that covers the path; of two at one place the later one."""
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
    """A space stands there as its octal number."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place)


# ---- files that are made beside others --------------------------------------------------------------------------------


def give_to_owner_of(folder: Path, made: Path | int) -> None:
    """What root makes by hand, by its path or descriptor: the daemon has to work on it."""
    if os.geteuid() == 0:
        around = folder.stat()
        os.chown(made, around.st_uid, around.st_gid)


def sync_folder(folder: Path) -> None:
    """Have the names of its files on disk, too."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
