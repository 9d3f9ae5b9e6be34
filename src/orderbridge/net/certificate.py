"""What a certificate that was refused says of itself, for the technician who has to find out whose it is."""

import ssl
from typing import Final

from orderbridge.clock import SystemClock
from orderbridge.message import Message

_MOST_NAMES: Final = 5
_LONGEST: Final = 100  # letters of a name that a stranger chose


def shown_by(tls: ssl.SSLObject | None) -> Message | str:
    """Who issued the certificate at the other end, for which names, and until when. Empty when it cannot be read."""
    document = None if tls is None else tls.getpeercert(binary_form=True)
    try:
        return "" if document is None else _described(document)
    except Exception:  # noqa: BLE001 - a stranger made it, and it is shown for help alone
        return ""


def _described(document: bytes) -> Message:
    from cryptography import x509  # noqa: PLC0415 - it is asked for when something is wrong

    certificate = x509.load_der_x509_certificate(document)
    try:
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names = [str(one.value) for one in alternatives]
    except x509.ExtensionNotFound:
        names = [certificate.subject.rfc4514_string()]
    return Message(
        "check.certificate",
        issuer=_plain(certificate.issuer.rfc4514_string()),
        names=", ".join(map(_plain, names[:_MOST_NAMES])),
        begins=certificate.not_valid_before_utc,
        ends=certificate.not_valid_after_utc,
        now=SystemClock().now(),
    )


def _plain(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:_LONGEST]
