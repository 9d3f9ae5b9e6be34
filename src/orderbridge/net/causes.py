"""Why a connection could not be made, as far as it was seen.

From an error of the system, of TLS or of a name server to a reason, a key of the sentences of `line`. What is in none of
these tables gets plain words, and no remedy of another cause.
"""

import errno
import socket
import ssl
from collections.abc import Mapping, Sequence
from typing import Final

SYSTEM: Final[Mapping[int, str]] = {
    errno.EMFILE: "here_files",
    errno.ENFILE: "here_files_of_all",
    errno.ENOMEM: "here_memory",
    errno.ENOBUFS: "here_memory",
    errno.ECONNREFUSED: "connection_refused",
    errno.ETIMEDOUT: "connect_timeout",
    errno.EACCES: "here_blocked",
    errno.EPERM: "here_blocked",
    errno.EADDRNOTAVAIL: "here_ports",
    errno.EHOSTUNREACH: "net_host",
    errno.EHOSTDOWN: "net_host",
    errno.ENETUNREACH: "net_none",
    errno.ENETDOWN: "net_none",
}
_RANKS: Final = list(dict.fromkeys(SYSTEM.values()))  # of several addresses the first of these says most
_RUN_OUT: Final = frozenset({"here_files", "here_files_of_all", "here_memory"})
NEEDED: Final = 4  # files at once: SQLite opens so many, and gives them back when the last one fails
NAMES: Final[Mapping[int, str]] = {
    socket.EAI_NONAME: "dns_failed",
    socket.EAI_NODATA: "dns_failed",
    socket.EAI_AGAIN: "dns_silent",
    socket.EAI_FAIL: "dns_refused",
    socket.EAI_MEMORY: "here_memory",
}
# OpenSSL's numbers (X509_V_ERR_…), which Python gives no names.
CERTIFICATES: Final[Mapping[int, str]] = {
    9: "tls_not_yet",
    10: "tls_expired",
    18: "tls_self_signed",
    19: "tls_foreign",
    2: "tls_untrusted",
    20: "tls_untrusted",
    21: "tls_untrusted",
    62: "tls_wrong_name",
    64: "tls_wrong_name",
}
TLS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"), "tls_none"),
    **dict.fromkeys(("TLSV1_ALERT_PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE"), "tls_version"),
    **dict.fromkeys(
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV1_ALERT_INSUFFICIENT_SECURITY", "DH_KEY_TOO_SMALL"), "tls_ciphers"
    ),
    "TLSV1_UNRECOGNIZED_NAME": "tls_no_such_host",
    "UNEXPECTED_EOF_WHILE_READING": "tls_cut",
}


def of_system(error: BaseException) -> str:
    """The reason; empty where none is known."""
    return SYSTEM.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def of_name(error: socket.gaierror) -> str:
    """A name server that cannot even be asked, for want of files or memory, seems not to answer."""
    return none_left() or NAMES.get(error.errno or 0, "")


def none_left(error: BaseException | None = None) -> str:
    """Whether files or memory have run out: by an error, by what it came of, or because nothing can be opened now."""
    while error is not None:
        if (reason := of_system(error)) in _RUN_OUT:
            return reason
        error = error.__cause__ or error.__context__
    tried: list[socket.socket] = []
    try:
        while len(tried) < NEEDED:
            tried.append(socket.socket())
    except OSError as own:
        return reason if (reason := of_system(own)) in _RUN_OUT else ""
    finally:
        for one in tried:
            one.close()
    return ""


def of_tls(error: Exception) -> str:
    """Why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return CERTIFICATES.get(error.verify_code, "tls_refused")
    if isinstance(error, ConnectionError):
        return "tls_cut"
    return TLS.get(getattr(error, "reason", None) or "", "tls_failed")


def of_addresses(errors: Sequence[BaseException]) -> tuple[BaseException | None, str]:
    """Of several addresses that could not be reached: the error that says most, and its reason."""
    reasons = [
        (error, of_system(error) or ("connect_timeout" if isinstance(error, TimeoutError) else "")) for error in errors
    ]
    known = [(error, reason) for error, reason in reasons if reason]
    if known:
        return min(known, key=lambda one: _RANKS.index(one[1]))
    return (errors[-1] if errors else None), ""
