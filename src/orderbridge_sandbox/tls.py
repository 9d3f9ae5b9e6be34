"""The sandbox's own certificate authority and the server's certificate ("All calls must use HTTPS").

The authority is kept in a directory, so that a client has to be set up only once. The server's certificate is new at
each start.
"""

import ipaddress
import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .options import Line
from .state import Clock, system_clock

LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
LOOPBACK: Final = ipaddress.IPv4Network("127.0.0.0/8")
ELSEWHERE: Final = "elsewhere.invalid"  # the name in the certificate of Line.WRONG_NAME
CA_DAYS: Final = 3650
LEAF_DAYS: Final = 397
REUSE_DAYS: Final = 30  # an authority with less time left is replaced

CA_FILE: Final = "ca.pem"
CA_KEY_FILE: Final = "ca-key.pem"
SERVER_FILE: Final = "server.pem"
STRANGER: Final = "untrusted"  # the folder of the authority that no client trusts


Authority: TypeAlias = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """The files of the certificates."""

    ca_file: Path  # what a client must trust
    server_file: Path  # the server's key and certificate in one file, so that two starts at once cannot mix them


def make_certificates(
    directory: Path,
    *,
    names: tuple[str, ...] = LOCAL_NAMES,
    line: Line = Line.GOOD,
    clock: Clock = system_clock,
) -> Certificates:
    """Write a certificate for the names, and an authority if there is none.

    If `line` names a fault of the certificate, the certificate gets that fault.
    """
    directory.mkdir(parents=True, exist_ok=True)
    now = clock()
    ca, ca_key = _authority(directory, names, now)
    if line is Line.UNTRUSTED:
        (directory / STRANGER).mkdir(exist_ok=True)
        ca, ca_key = _authority(directory / STRANGER, names, now)
    names = (ELSEWHERE,) if line is Line.WRONG_NAME else names
    key = ec.generate_private_key(ec.SECP256R1())
    leaf = (
        _builder("orderbridge sandbox", ca.subject, key.public_key(), _validity(line, now))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    _write(directory / SERVER_FILE, _key_pem(key) + leaf.public_bytes(serialization.Encoding.PEM), mode=0o600)
    return Certificates(ca_file=directory / CA_FILE, server_file=directory / SERVER_FILE)


def _validity(line: Line, now: datetime) -> tuple[datetime, datetime]:
    match line:
        case Line.EXPIRED:
            return now - timedelta(days=2), now - timedelta(hours=1)
        case Line.NOT_YET_VALID:
            return now + timedelta(days=1), now + timedelta(days=LEAF_DAYS)
        case _:
            return now - timedelta(days=2), now + timedelta(days=LEAF_DAYS)


def _authority(directory: Path, names: tuple[str, ...], now: datetime) -> Authority:
    """The existing authority if it may sign these names; else a new one, for these names and those of the old one."""
    found = _load_authority(directory, now)
    permitted = set() if found is None else _permitted(found[0])
    wanted = {_subtree(name) for name in (*LOCAL_NAMES, ELSEWHERE, *names)}
    if found is not None and wanted <= permitted:
        return found
    return _new_authority(directory, sorted(wanted | permitted, key=str), now)


def _permitted(ca: x509.Certificate) -> set[x509.GeneralName]:
    try:
        return set(ca.extensions.get_extension_for_class(x509.NameConstraints).value.permitted_subtrees or ())
    except x509.ExtensionNotFound:  # from an older sandbox: its key could sign for any site
        return set()


def _subtree(name: str) -> x509.GeneralName:
    """What the authority may sign: an address (for a loopback one, 127.0.0.0/8), or a name with its subdomains."""
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return x509.DNSName(name)
    return x509.IPAddress(LOOPBACK if address in LOOPBACK else ipaddress.ip_network(address))


def _load_authority(directory: Path, now: datetime) -> Authority | None:
    try:
        ca = x509.load_pem_x509_certificate((directory / CA_FILE).read_bytes())
        key = serialization.load_pem_private_key((directory / CA_KEY_FILE).read_bytes(), password=None)
    except (OSError, ValueError):
        return None
    valid = ca.not_valid_before_utc <= now and now + timedelta(days=REUSE_DAYS) < ca.not_valid_after_utc
    if not isinstance(key, ec.EllipticCurvePrivateKey) or ca.public_key() != key.public_key() or not valid:
        return None
    return ca, key


def _new_authority(directory: Path, permitted: list[x509.GeneralName], now: datetime) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = "orderbridge sandbox CA"
    ca = (
        _builder(name, _name(name), key.public_key(), (now - timedelta(days=2), now + timedelta(days=CA_DAYS)))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.NameConstraints(permitted, None), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write(directory / CA_KEY_FILE, _key_pem(key), mode=0o600)
    _write(directory / CA_FILE, ca.public_bytes(serialization.Encoding.PEM), mode=0o644)
    return ca, key


def _builder(
    subject: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity: tuple[datetime, datetime]
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(validity[0])
        .not_valid_after(validity[1])
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes, *, mode: int) -> None:
    """Write the file atomically, with this mode from the beginning: a key is never readable by others."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    draft.replace(path)
