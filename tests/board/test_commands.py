"""`orderbridge board`: pair, list, revoke."""

import sqlite3

from tests.cli.conftest import command, config_file, configure, path, pos, run
from tests.cli.shell import Run, document
from tests.store.samples import put

from orderbridge_board import devices

__all__ = ["command", "config_file", "configure", "path", "pos", "run"]

BOARD = '[web]\nlisten = "127.0.0.1:8480"\nboard = "beside"'


def test_a_code_has_a_role_and_a_new_one_explains_why_the_last_is_invalid(run: Run, configure, pos: sqlite3.Connection):
    off = run("board", "pair")
    assert off.code == 1 and "board is off" in off.err
    configure(document(more=BOARD))
    wanted = {(): devices.ACT, ("--look",): devices.LOOK, ("--look-customers",): devices.LOOK_CUSTOMERS}
    for options, role in wanted.items():
        made = run("board", "pair", *options)
        assert (made.code, len(made.out.replace(" ", "").strip())) == (0, devices.DIGITS)
        assert "http://127.0.0.1:8480/" in made.err
        assert ("not used" in made.err) is bool(options)  # the first has none before it
        assert [row["role"] for row in pos.execute("SELECT role FROM delivery_board_pairing")] == [role]
    pos.execute("UPDATE delivery_board_pairing SET tries_left = 0")
    assert f"after {devices.MOST_TRIES} wrong tries" in run("board", "pair").err


def test_a_tablet_is_listed_and_revoked(run: Run, pos: sqlite3.Connection):
    assert "No tablet is paired" in run("board", "devices").err
    times = dict.fromkeys(("paired_utc", "seen_utc"), "2026-03-01 12:00:00.000")
    put(pos, "delivery_board_devices", id="a1", name="Counter", role=devices.ACT, cookie_hash="hash", **times)
    (one,) = run("board", "devices", "--json").json
    assert (one["id"], one["name"], one["role"]) == ("a1", "Counter", devices.ACT)
    assert "hash" not in run("board", "devices").out
    assert [run("board", "revoke", "Counter").code for _ in range(2)] == [0, 1]
