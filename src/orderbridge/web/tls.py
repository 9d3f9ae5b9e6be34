"""The board's own certificate: read at the start and at each reload, and looked at before by `check`."""

import ssl
from datetime import datetime

from orderbridge import config


class Unusable(OSError):
    """A certificate and a key that cannot be read, or do not belong together. Its text says which."""


def context(wanted: config.Web) -> ssl.SSLContext | None:
    """None: nothing is encrypted. Raises Unusable."""
    if wanted.certificate is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(made, wanted)
    return made


def renew(used: ssl.SSLContext, wanted: config.Web) -> None:
    """From now on connections are given the files as they are. Raises Unusable; then they stay as they were."""
    if wanted.certificate is not None:
        context(wanted)  # of a pair that does not match the certificate would stay, and no key
        _load(used, wanted)


def _load(into: ssl.SSLContext, wanted: config.Web) -> None:
    try:
        into.load_cert_chain(str(wanted.certificate), wanted.certificate_key, password="")
    except OSError as error:  # ssl's own are among them
        raise Unusable(error.strerror or str(error)) from error


def ends(wanted: config.Web) -> datetime | None:
    """When browsers trust it no more; None: there is none, or it cannot be read."""
    from cryptography import x509  # noqa: PLC0415 - only where there is a certificate

    if wanted.certificate is None:
        return None
    try:
        return x509.load_pem_x509_certificate(wanted.certificate.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None
