"""A server that says byte for byte what a test wants, over real TLS on loopback."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PATIENCE_S = 300.0  # of a client; nobody waits for it: see `skip`
Talk = Callable[["Line"], Awaitable[None]]


def skip(seconds: float) -> None:
    """The loop's clock goes on by so much: a timeout passes at the moment that the test wants, on any machine."""
    loop = asyncio.get_running_loop()
    time = loop.time
    loop.time = lambda: time() + seconds  # type: ignore[method-assign]


@dataclass
class Line:
    """One connection, seen from the server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def request(self) -> bytes:
        """The head of the next request (its body is swallowed); b"" when the client has closed."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            return error.partial
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                head += await self.reader.readexactly(int(value))
        return head

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_closed(self) -> None:
        while await self.reader.read(65536):
            pass

    async def never(self) -> None:
        """Hears a request, and the client's patience is at its end."""
        await self.request()
        skip(PATIENCE_S)
        await self.until_closed()

    def reset(self) -> None:
        self.writer.transport.abort()


def http_answer(body: bytes, *, status: str = "200 OK", head: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body


@dataclass
class Server:
    """What a test wants to know of the server."""

    port: int
    connections: int = 0

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


@contextlib.asynccontextmanager
async def serving(talk: Talk, tls: ssl.SSLContext | None) -> AsyncIterator[Server]:
    """Each connection is one call of `talk`; it is closed when that returns."""
    tasks: set[asyncio.Task[None]] = set()
    writers: list[asyncio.StreamWriter] = []
    state = Server(0)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        writers.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await talk(Line(reader, writer))
        writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        for writer in writers:
            writer.transport.abort()  # a TLS connection closed politely waits for the other side
        await asyncio.gather(*tasks, *[writer.wait_closed() for writer in writers], return_exceptions=True)


@dataclass(frozen=True)
class Certificates:
    """Server contexts, and the file of the authority that vouches for all but one of them."""

    ca_file: Path
    good: ssl.SSLContext
    wrong_name: ssl.SSLContext
    expired: ssl.SSLContext
    unknown_authority: ssl.SSLContext
    no_intermediate: ssl.SSLContext
    self_signed: ssl.SSLContext
    old: ssl.SSLContext  # no TLS newer than 1.1


def make_certificates(folder: Path) -> Certificates:
    now = dt.datetime.now(dt.UTC)
    later = now + dt.timedelta(days=1)
    ca, other = _Authority("Test CA"), _Authority("Other CA")
    between = _Authority("Intermediate CA", ca)
    ca_file = folder / "ca.pem"
    ca_file.write_bytes(ca.pem)
    loopback = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    old = ca.server(folder / "old.pem", loopback, later)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    return Certificates(
        ca_file=ca_file,
        good=ca.server(folder / "good.pem", loopback, later),
        wrong_name=ca.server(folder / "name.pem", x509.DNSName("elsewhere.test"), later),
        expired=ca.server(folder / "expired.pem", loopback, now - dt.timedelta(days=1)),
        unknown_authority=other.server(folder / "other.pem", loopback, later),
        no_intermediate=between.server(folder / "leaf.pem", loopback, later),
        self_signed=_Authority("127.0.0.1").server(folder / "self.pem", loopback, later, is_own=True),
        old=old,
    )


class _Authority:
    def __init__(self, name: str, issuer: "_Authority | None" = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = dt.datetime.now(dt.UTC)
        by = issuer or self
        self.certificate = (
            by._builder(self.name, self.key.public_key(), now + dt.timedelta(days=2))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs=True), critical=True)
            .sign(by.key, hashes.SHA256())
        )
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def _builder(self, name: x509.Name, key: ec.EllipticCurvePublicKey, until: dt.datetime) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(self.name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(until - dt.timedelta(days=30))
            .not_valid_after(until)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )

    def server(self, path: Path, name: x509.GeneralName, until: dt.datetime, *, is_own: bool = False) -> ssl.SSLContext:
        key = self.key if is_own else ec.generate_private_key(ec.SECP256R1())
        common = x509.NameAttribute(NameOID.COMMON_NAME, "server")
        subject = self.name if is_own else x509.Name([common])
        certificate = (
            self._builder(subject, key.public_key(), until)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(_key_usage(signs=False), critical=True)
            .sign(self.key, hashes.SHA256())
        )
        path.write_bytes(
            certificate.public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context


def _key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
