"""The static files of the pages, and the list of those that a tablet's service worker caches.

Rules of this file:
- Scripts, styles and sentences are served below a path that has a hash of their contents. A page loads only files of
  its own version, so it never mixes two versions.
- The service worker's file begins with this hash and the cached paths. After an upgrade the file differs, so the
  browser installs it, and it replaces the old cache.
"""

import json
from hashlib import sha256
from importlib.resources import files
from pathlib import PurePath

from orderbridge_board.door import words

STATIC = files("orderbridge_board").joinpath("static")
FILES = {file.name: file.read_bytes() for file in sorted(STATIC.iterdir(), key=lambda file: file.name)}
PAGES = {"/": "board.html", "/board": "board.html", "/status": "status.html"}
WORKER = "worker.js"
# Paths that never change, because an installed page is identified by them.
STABLE = {"/manifest.webmanifest": "manifest.webmanifest", "/icon.svg": "icon.svg", "/icon.png": "icon.png"}
TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webmanifest": "application/manifest+json",
}


def version() -> str:
    """The hash of all files and sentences."""
    named = [part for name, content in FILES.items() for part in (name.encode(), content)]
    return sha256(b"\0".join([*named, _words()])).hexdigest()[:16]


def served() -> dict[str, tuple[bytes, str]]:
    """Content and media type by path."""
    name = version()
    folder = f"/board/{name}"
    apart = {WORKER, *PAGES.values(), *STABLE.values()}
    found = {path: FILES[page].replace(b"{version}", name.encode()) for path, page in PAGES.items()}
    found |= {path: FILES[file] for path, file in STABLE.items()}
    found |= {f"{folder}/{file}": content for file, content in FILES.items() if file not in apart}
    found[f"{folder}/words.json"] = _words()
    kept = json.dumps({"version": name, "paths": list(found)})
    found[f"/{WORKER}"] = f"self.shell = {kept};\n".encode() + FILES[WORKER]
    kinds = {path: PurePath(PAGES.get(path, path)).suffix for path in found}
    return {path: (content, TYPES[kinds[path]]) for path, content in found.items()}


def _words() -> bytes:
    return json.dumps(words(), ensure_ascii=False).encode()
