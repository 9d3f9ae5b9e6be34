"""No writer waits for the reader of stdout or stderr; dropped lines are counted and reported."""

import fcntl
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click
import pytest
from structlog.testing import capture_logs

from orderbridge.observe import logs as output
from orderbridge.observe.logs import Output

LINE = "x" * 999 + "\n"
MOST = 100_000


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reader, stream
        os.close(reader)


def reported(lines: list[dict[str, object]], writer: Output) -> int:
    """The number of dropped lines, as reported once the reader reads again."""
    with writer._changed:
        assert writer._changed.wait_for(lambda: lines, 60)
    assert [line["event"] for line in lines] == ["log.lines_dropped"]
    return int(str(lines[0]["count"]))


@pytest.mark.parametrize("blocks", [True, False])
def test_a_stopped_reader_delays_no_writer_and_gets_the_number_of_lost_lines(blocks, pipe) -> None:
    writer, number = Output(pipe[1], MOST), pipe[1].fileno()
    os.set_blocking(number, False)
    filling = fcntl.fcntl(number, fcntl.F_GETPIPE_SZ)
    os.write(number, b"-" * filling)
    os.set_blocking(number, blocks)
    with capture_logs() as lines:
        writer.write(LINE)
        while not writer.stuck_s():
            threading.Event().wait(0.001)
        for _ in range(199):
            writer.write(LINE)
        writer.flush()
        assert lines == []
        heard: list[bytes] = []
        reading = threading.Thread(target=lambda: heard.extend(iter(lambda: os.read(pipe[0], 65536), b"")))
        reading.start()
        assert reported(lines, writer) == 200 - MOST // len(LINE)
        writer.drain()
        assert writer.stuck_s() == 0
    pipe[1].close()
    reading.join()
    kept = b"".join(heard)[filling:].decode().splitlines(keepends=True)
    assert kept == [LINE] * (MOST // len(LINE))


def test_what_the_system_refuses_is_counted_too(pipe: tuple[int, TextIO]) -> None:
    good = os.dup(pipe[1].fileno())
    with Path("/dev/full").open("w") as full:
        os.dup2(full.fileno(), pipe[1].fileno())
    writer = Output(pipe[1], MOST)
    with capture_logs() as lines:
        for _ in range(3):
            writer.write(LINE)
        writer.drain()
        assert writer.stuck_s() > 0 and lines == []
        os.dup2(good, pipe[1].fileno())
        writer.write("again\n")
        assert reported(lines, writer) == 3
    os.close(good)
    assert os.read(pipe[0], 65536) == b"again\n"


def test_the_end_of_the_process_waits_briefly_for_output(pipe: tuple[int, TextIO], monkeypatch) -> None:
    writer = Output(pipe[1], MOST)
    monkeypatch.setattr(sys, "stderr", writer)
    click.echo("last words, with ş", err=True)
    writer.drain()
    assert os.read(pipe[0], 100).decode() == "last words, with ş\n"
    monkeypatch.setattr(output, "DRAIN_S", 0.01)
    for _ in range(99):
        writer.write(LINE)
    writer.drain()
    assert os.read(pipe[0], 10) == b"x" * 10
