"""Switches for what a tester wants to provoke: the pace of orders, trouble, a bad line, a wrong clock."""

from dataclasses import dataclass
from enum import StrEnum

from .faults import EVERY_OPERATION, FaultKind, When
from .switches import switch


class Where(StrEnum):
    """In which restaurants orders are placed by themselves."""

    ANYWHERE = "anywhere"
    LOGGED_IN = "logged_in"  # where somebody with a valid token can see them


class Courier(StrEnum):
    """Who brings the orders that are placed by themselves, and those that say nothing else."""

    ANY = "any"
    RESTAURANT = "restaurant"
    COME_GET = "come_get"
    PLATFORM_COURIER = "platform_courier"


class Line(StrEnum):
    """What is wrong with the line before a call is read."""

    GOOD = "good"
    REFUSED = "refused"  # nobody listens
    RESET = "reset"  # the connection is taken and torn down
    SILENT = "silent"  # it is taken, and TLS is never answered
    GARBAGE = "garbage"  # it is answered in plain text
    EXPIRED = "expired"  # a certificate that has ended
    NOT_YET_VALID = "not_yet_valid"
    WRONG_NAME = "wrong_name"
    UNTRUSTED = "untrusted"  # one of another authority


class Language(StrEnum):
    """The language of advice."""

    ENGLISH = "en"
    TURKISH = "tr"


@dataclass(frozen=True, kw_only=True)
class Pace:
    """Orders that are placed by themselves, and the clock."""

    orders_per_minute: float = switch(
        0.0,
        en="Orders placed by themselves; 0: none. The command `sandbox` begins with 2.",
        tr="Dakikada kendiliğinden verilen sipariş; 0: hiç. `sandbox` komutu 2 ile başlar.",
    )
    max_orders: int | None = switch(
        None,
        en="How many orders are placed by themselves at most.",
        tr="Kendiliğinden en çok kaç sipariş verileceği.",
    )
    orders_where: Where = switch(
        Where.ANYWHERE,
        en="In which restaurants orders are placed by themselves: in all, or only where a valid token can see them, so that each of them arrives. The command `sandbox` begins with logged_in.",
        tr="Kendiliğinden siparişler hangi restoranlara verilir: hepsine ya da yalnızca geçerli bir anahtarın gördüklerine; böylece her biri ulaşır. `sandbox` komutu logged_in ile başlar.",
    )
    orders_courier: Courier = switch(
        Courier.ANY,
        en="Who brings the orders that are placed.",
        tr="Verilen siparişleri kim götürür.",
    )
    clock_offset_seconds: float = switch(
        0.0,
        en="How far the platform's clock is ahead of this machine's, in seconds; below 0: behind.",
        tr="Platformun saati bu bilgisayarınkinden kaç saniye ileride; 0'dan küçükse geride.",
    )
    language: Language = switch(
        Language.ENGLISH,
        en="The language of advice, in the ledger and on the terminal.",
        tr="Kayıttaki ve ekrandaki önerilerin dili.",
    )


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What goes wrong with calls, again and again; a single fault is added by POST /_sandbox/faults."""

    latency_seconds: float = switch(
        0.0,
        en="Each answer comes so many seconds late.",
        tr="Her yanıt bu kadar saniye geç gelir.",
    )
    latency_jitter_seconds: float = switch(
        0.0,
        en="And up to so many more, by chance.",
        tr="Buna rastgele en çok bu kadar saniye daha eklenir.",
    )
    trouble_percent: float = switch(
        0.0,
        en="So many of a hundred calls meet trouble, by chance.",
        tr="Yüz istekten rastgele bu kadarı sorunla karşılaşır.",
    )
    trouble_every: int = switch(
        0,
        en="Every n-th call meets trouble; 0: none.",
        tr="Her bu kadarıncı istek sorunla karşılaşır; 0: hiçbiri.",
    )
    outage_every_seconds: float = switch(
        0.0,
        en="So often begins an outage, in which every call meets trouble; the first after so many seconds. 0: never.",
        tr="Bu kadar saniyede bir kesinti başlar; kesintide her istek sorunla karşılaşır. İlki bu süre dolunca gelir. 0: hiç.",
    )
    outage_seconds: float = switch(
        60.0,
        en="For how many seconds an outage lasts.",
        tr="Bir kesintinin kaç saniye sürdüğü.",
    )
    trouble_operation: str = switch(
        EVERY_OPERATION,
        en="Which operation meets trouble; *: all.",
        tr="Sorunla karşılaşan işlem; *: hepsi.",
    )
    trouble_kind: FaultKind = switch(
        FaultKind.ANSWER,
        en="What trouble is: an answer with trouble_status, or another kind of fault.",
        tr="Sorunun türü: trouble_status ile bir yanıt ya da başka bir arıza.",
    )
    trouble_status: int = switch(
        503,
        en="The HTTP status of that answer.",
        tr="Bu yanıtın HTTP kodu.",
    )
    trouble_when: When = switch(
        When.BEFORE,
        en="Whether the call is in vain (before), or done and only its answer lost (after).",
        tr="İstek boşa mı gider (before), yoksa yapılır da yalnızca yanıtı mı kaybolur (after).",
    )


@dataclass(frozen=True, kw_only=True)
class Connections:
    """The line and its bounds. They hold for the control interface, too: it is at the same address."""

    line: Line = switch(
        Line.GOOD,
        en="What is wrong before a call is read: connections refused, reset, never answered or answered with garbage, or a bad certificate.",
        tr="İstek okunmadan önceki sorun: bağlantı reddedilir, koparılır, hiç yanıtlanmaz, anlamsız yanıtlanır ya da sertifika bozuktur.",
    )
    line_seconds: float = switch(
        30.0,
        en="For how many seconds, then the line is good again; 0: until the sandbox ends.",
        tr="Kaç saniye sürdüğü, sonra bağlantı düzelir; 0: sandbox kapanana kadar.",
    )
    keep_alive_seconds: float = switch(
        5.0,
        en="After how many idle seconds a connection is closed.",
        tr="Boş duran bağlantı kaç saniye sonra kapatılır.",
    )
    reading_seconds: float = switch(
        30.0,
        en="Within how many seconds a request must have arrived whole; then the connection is closed.",
        tr="İstek kaç saniye içinde tamamen gelmiş olmalı; sonra bağlantı kapatılır.",
    )
    header_limit_bytes: int = switch(
        65_536,
        en="How long a request's head may be; a longer one is answered 431.",
        tr="İstek başlıklarının en büyük boyu; daha uzunu 431 alır.",
    )
    body_limit_bytes: int = switch(
        1_048_576,
        en="How long a request's body may be; a longer one is answered 413.",
        tr="İstek gövdesinin en büyük boyu; daha uzunu 413 alır.",
    )
