"""Each known cause has its own sentence and remedy; an unknown one is only named."""

import errno
import re
import socket
import sqlite3
import ssl
import threading

import pytest
from sqlalchemy.exc import OperationalError

from orderbridge.errors import ONCE_KNOWN, Message, NotSent
from orderbridge.marketplace.answers import _FOREIGN_REASONS
from orderbridge.net import connector
from orderbridge.store import workers
from orderbridge.store.failures import remedy
from orderbridge.texts import SENTENCES

BEFORE = "marketplace.base_url"  # a remedy of a new installation


def test_each_reason_has_its_own_two_sentences() -> None:
    tables = (connector.SYSTEM, connector.NAMES, connector.CERTIFICATES, connector.TLS, ONCE_KNOWN, _FOREIGN_REASONS)
    reasons = {reason for table in tables for reason in table.values()} | set(ONCE_KNOWN)
    for language in ("tr", "en"):
        said = [SENTENCES[f"line.{reason}"][language] for reason in reasons]
        assert len(set(said)) == len(said)
        assert [words for words in said if len(re.findall(r"[.!?](?: |$)", words)) > 2] == []


def test_an_address_that_once_worked_gets_no_installation_remedies() -> None:
    for new, known in ONCE_KNOWN.items():
        assert NotSent("x", reason=new).known_before().reason == known
        words = SENTENCES[f"line.{known}"]["en"]
        assert "path" not in words and "spelling" not in words and f"{BEFORE} with its port" not in words, new
    assert NotSent("x", reason="tls_expired").known_before().reason == "tls_expired"


def verification(code: int) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_code = code
    return error


def handshake(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, "x")
    error.reason = reason
    return error


@pytest.mark.parametrize("error, reason", [
    (verification(19), "tls_foreign"), (verification(23), "tls_refused"),
    (handshake("TLSV1_ALERT_PROTOCOL_VERSION"), "tls_version"), (ConnectionResetError(), "tls_cut"),
    (handshake("SOMETHING_NEW"), "tls_failed"), (ValueError(), "tls_failed"),
])  # fmt: skip
def test_a_handshake_that_failed(error: Exception, reason: str) -> None:
    assert connector.of_tls(error) == reason


def failed(number: int) -> OSError:
    return OSError(number, "x")


@pytest.mark.parametrize("errors, reason", [
    ([failed(errno.EMFILE)], "here_files"), ([TimeoutError()], "connect_timeout"), ([failed(errno.EPROTO)], ""),
    ([failed(errno.ECONNREFUSED), failed(errno.ENETUNREACH)], "connection_refused"),  # no IPv6, as in most places
    ([failed(errno.EADDRNOTAVAIL), failed(errno.ETIMEDOUT)], "connect_timeout"),
    ([failed(errno.ECONNREFUSED), failed(errno.EMFILE)], "here_files"), ([], ""),
])  # fmt: skip
def test_of_several_addresses_the_most_specific_error_is_reported(errors: list[BaseException], reason: str) -> None:
    assert connector.of_addresses(errors)[1] == reason


@pytest.mark.parametrize("number, own, reason", [
    (socket.EAI_NONAME, None, "dns_failed"), (socket.EAI_AGAIN, None, "dns_silent"), (socket.EAI_SYSTEM, None, ""),
    (socket.EAI_AGAIN, errno.EMFILE, "here_files"),
])  # fmt: skip
def test_a_name_that_could_not_be_looked_up(number: int, own: int | None, reason: str, monkeypatch) -> None:
    def no_socket() -> None:
        raise failed(own or 0)

    if own is not None:
        monkeypatch.setattr(socket, "socket", no_socket)
    assert connector.of_name(socket.gaierror(number, "x")) == reason


def test_without_a_thread_for_the_lookup_nothing_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with pytest.raises(NotSent) as caught:
        workers.run(connector.look_up("api.example.com", 443))
    assert caught.value.reason == "here_threads"


def test_too_many_open_files_are_reported_as_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_socket() -> None:
        raise failed(errno.EMFILE)

    unreadable = ValueError("not a readable file")
    unreadable.__cause__ = failed(errno.EMFILE)
    assert connector.exhausted(unreadable) == "here_files"
    monkeypatch.setattr(socket, "socket", no_socket)
    own = OperationalError("SELECT", None, sqlite3.OperationalError("unable to open database file"))
    assert remedy(own) == Message("line.here_files")
    monkeypatch.undo()
    assert connector.exhausted(ValueError("not a readable file")) == ""
