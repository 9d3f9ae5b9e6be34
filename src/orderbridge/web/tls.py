"""The board's own certificate: read at the start and at each reload, and looked at before by `check`."""

import ssl
from datetime import datetime, timedelta

from orderbridge import config

SOON = timedelta(days=14)  # before its end it is told


def context(wanted: config.Web) -> ssl.SSLContext | None:
    """None: nothing is encrypted. Raises OSError, as ssl's own errors are."""
    if wanted.certificate is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_cert_chain(wanted.certificate, wanted.certificate_key, password="")
    return made


def renew(used: ssl.SSLContext, wanted: config.Web) -> None:
    """From now on connections are given the files as they are. Raises OSError; then they stay as they were."""
    if wanted.certificate is not None:
        context(wanted)  # of a pair that does not match the certificate would stay, and no key
        used.load_cert_chain(wanted.certificate, wanted.certificate_key, password="")


def ends(wanted: config.Web) -> datetime | None:
    """When browsers trust it no more; None: there is none, or it cannot be read."""
    from cryptography import x509  # noqa: PLC0415 - only where there is a certificate

    if wanted.certificate is None:
        return None
    try:
        return x509.load_pem_x509_certificate(wanted.certificate.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None
