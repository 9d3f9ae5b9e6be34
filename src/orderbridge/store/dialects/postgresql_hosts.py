"""Several servers in one address: begin with the one that took a session last.

The driver tries them in the order of the address, for each session anew, and waits some seconds for one that says nothing:
a machine without power, or one that hangs. After a failover that is the first one. Whoever has less time than that for a
session and what it asks, as a replica has with its locks, would never come to the second.
"""

import threading
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Engine, event

Server = tuple[str, str]  # host, port

_guard = threading.Lock()
_first: dict[frozenset[Server], Server] = {}  # of these servers, with which to begin


def arranged(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The driver's arguments with its servers in the order in which they are to be tried."""
    servers = _servers(arguments)
    if not servers:
        return dict(arguments)
    with _guard:
        first = _first.get(frozenset(servers), servers[0])
    place = servers.index(first)
    hosts, ports = zip(*servers[place:], *servers[:place], strict=True)
    return {**arguments, "host": ",".join(hosts), "port": ",".join(ports)}


def took(arguments: Mapping[str, Any], session: Any) -> None:
    """These arguments have led to this session; None: to none in time, so that the next one begins with another server."""
    servers = _servers(arguments)
    if servers:
        found = servers[1] if session is None else (session.info.host, str(session.info.port))
        with _guard:
            _first[frozenset(servers)] = found if found in servers else servers[0]


def _servers(arguments: Mapping[str, Any]) -> list[Server]:
    """None where there is only one, or where addresses stand beside the names: those would have to move, too."""
    hosts = str(arguments.get("host", "")).split(",")
    ports = str(arguments.get("port", "")).split(",")
    if len(hosts) == 1 or "hostaddr" in arguments:
        return []
    ports = ports * len(hosts) if len(ports) == 1 else ports
    return [(host, port or "5432") for host, port in zip(hosts, ports, strict=True)]


def begin_with_the_last(engine: Engine) -> None:
    """Each session of the engine, where its address names several servers."""
    if not _servers(engine.dialect.create_connect_args(engine.url)[1]):
        return

    def connect(dialect: Any, _: Any, positional: Any, arguments: dict[str, Any]) -> Any:
        named = arranged(arguments)
        try:
            session = dialect.connect(*positional, **named)
        except dialect.loaded_dbapi.Error:
            took(named, None)
            raise
        took(named, session)
        return session

    event.listen(engine, "do_connect", connect)
