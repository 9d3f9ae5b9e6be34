"""Replicas reload their configuration under load: an invalid one changes nothing."""

import base64
import re
import secrets
import signal
from collections.abc import Callable

import pytest
from tests.fleet.live import fleet as rig
from tests.fleet.live.fleet import Fleet
from tests.fleet.live.test_fleet import PAUSE_S, all_are_polled, fleet, nothing_is_wrong, url

__all__ = ["fleet", "url"]

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]


def reloaded(fleet: Fleet, settings: str, word: str) -> None:
    """And its log says so, once more than before."""
    before = fleet.log(0).count(word)
    fleet.write("0.toml", settings)
    fleet.replicas[0].send_signal(signal.SIGHUP)
    rig.until(lambda: fleet.log(0).count(word) > before)


def strange_key(fleet: Fleet, settings: str) -> str:
    strange = fleet.write("strange", base64.b64encode(secrets.token_bytes(32)).decode())
    return settings.replace(str(fleet.key_file), str(strange))


BROKEN: dict[str, Callable[[Fleet, str], str]] = {
    "no configuration": lambda _, settings: settings.replace("[marketplace]", "[marketplace"),
    "a strange master key": strange_key,
    "no server there": lambda _, settings: re.sub(r"@[^/\"]*/", "@127.0.0.1:9/", settings),
    "no authority": lambda fleet, settings: settings.replace(str(fleet.end.ca_file), str(fleet.folder / "0.toml")),
}


def test_a_replica_that_reads_what_cannot_be_used_goes_on_as_it_was(fleet: Fleet):
    good, held = (fleet.folder / "0.toml").read_text(), fleet.holders()
    with rig.till(fleet, PAUSE_S):
        for spoil in BROKEN.values():
            reloaded(fleet, spoil(fleet, good), "config.reload_failed")
            all_are_polled(fleet)
        reloaded(fleet, good, "daemon.started")
        all_are_polled(fleet)
    assert fleet.holders() == held
    assert fleet.log(0).count("daemon.started") == 2
    nothing_is_wrong(fleet)
