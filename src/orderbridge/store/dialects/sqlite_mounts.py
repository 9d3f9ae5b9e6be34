"""On which kind of file system a path lies: SQLite's WAL is memory shared by processes of one machine.

Where the files of several machines meet, each has its own idea of that memory and of the locks, and the file is damaged
without a word. The system tells the kind by its name; statfs has only numbers, and one for all of FUSE.
"""

import os
import re
from pathlib import Path

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


def _kind_of(path: str) -> str | None:
    """Of the mount that covers the path; of two at one place the later one."""
    try:
        lines = MOUNTS.read_text("utf-8", "surrogateescape").splitlines()
    except OSError:  # no Linux, or no /proc: nobody can say
        return None
    found, depth = None, -1
    for line in lines:
        mount, _, source = line.partition(" - ")
        place = _unescaped(mount.split(" ")[4]).rstrip("/")
        if (path == place or path.startswith(f"{place}/")) and len(place) >= depth:
            found, depth = source.split(" ")[0], len(place)
    return found


def _unescaped(place: str) -> str:
    """A space stands there as its octal number."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), place)
