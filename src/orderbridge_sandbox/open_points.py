"""A switch for each thing that docs/interface.md leaves open ("Open").

The defaults are one plausible service. A client that is right must work with every setting.
"""

from dataclasses import dataclass
from enum import StrEnum

from . import rules
from .switches import switch


class Disallowed(StrEnum):
    """What an operation answers in a status that does not allow it ("Order transitions", last line)."""

    REFUSED = "refused"  # disallowed_status and disallowed_error
    NOT_FOUND = "not_found"  # 404 "sipariş bulunamadı"
    OK = "ok"  # 200 "OK", without effect


class Coverage(StrEnum):
    """Which restaurants one get-current list covers (endpoint 6, last line)."""

    ALL = "all"  # every restaurant of the credential
    FIRST = "first"  # the credential's first one only


class CooldownScope(StrEnum):
    """Whose a cooldown is ("Limits"): who calls inside it gets 429."""

    CREDENTIAL = "credential"
    APPLICATION = "application"  # all credentials with one app_secret_key
    ADDRESS = "address"  # all that call from one network address
    RESTAURANT = "restaurant"  # all credentials that reach one restaurant


class RetryAfter(StrEnum):
    """Whether a 429 says when to come back."""

    NONE = "none"
    SECONDS = "seconds"
    DATE = "date"


class ListOrder(StrEnum):
    """The order of the orders in get-current (endpoint 6)."""

    OLDEST_FIRST = "oldest_first"
    NEWEST_FIRST = "newest_first"
    SHUFFLED = "shuffled"


class MenuShape(StrEnum):
    """The shape of `data` in the menu listing."""

    FLAT = "flat"  # a list of foods
    BY_CATEGORY = "by_category"  # a list of categories, each with its foods
    WRAPPED = "wrapped"  # an object with a list `foods`


class TokenMessage(StrEnum):
    """The message of a 401 ("Authentication" 4), where the endpoint itself does not fix it."""

    EXPIRED_OR_INVALID = rules.EXPIRED_OR_INVALID
    INVALID_OR_EXPIRED = rules.INVALID_OR_EXPIRED


class Completable(StrEnum):
    """Which orders can be completed from CONFIRMED; the table has only IN_DELIVERY."""

    NONE = "none"
    WITHOUT_OWN_COURIER = "without_own_courier"  # pickup and the platform's couriers: ontheway is not for them
    ALL = "all"


class Life(StrEnum):
    """Who moves an order on that the restaurant's own courier does not bring."""

    POS = "pos"  # only the POS's calls
    PLATFORM = "platform"  # the platform itself, step by step


class Check(StrEnum):
    """What a call is checked for."""

    TOKEN = "token"  # noqa: S105 - 401
    URL = "url"  # 403: the id in the path is no UUID
    BODY = "body"  # 422
    EXISTS = "exists"  # 404
    STATUS = "status"  # the order's status does not allow it
    LIMIT = "limit"  # 429


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits: of the list, of tokens and logins. docs/interface.md gives the first two; shorter ones make tests quick."""

    cooldown_seconds: float = switch(
        30.0,
        en="Seconds between two calls of get-current.",
        tr="İki get-current isteği arasındaki saniye.",
    )
    token_seconds: float = switch(
        86400.0,
        en="For how many seconds an access token is valid.",
        tr="Erişim anahtarının (token) geçerli olduğu saniye.",
    )
    cooldown_scope: CooldownScope = switch(
        CooldownScope.CREDENTIAL,
        en="Who shares a cooldown: one credential, all of one application, all that call from one address, or all credentials that reach one restaurant.",
        tr="Bekleme süresi kimler arasında ortak: tek hesap, aynı uygulamanın bütün hesapları, aynı adresten gelen herkes ya da aynı restorana erişen bütün hesaplar.",
    )
    cooldown_restarts_on_429: bool = switch(
        False,
        en="Whether a call that came too early begins the cooldown anew.",
        tr="Erken gelen istek bekleme süresini baştan başlatır mı.",
    )
    retry_after: RetryAfter = switch(
        RetryAfter.NONE,
        en="Whether a 429, and a 503 of trouble_*, carries the header Retry-After: not at all, in seconds, or as a date.",
        tr="429 yanıtında ve trouble_* ile gelen 503'te Retry-After başlığı: hiç yok, saniye olarak ya da tarih olarak.",
    )
    retry_after_seconds: float | None = switch(
        None,
        en="What Retry-After says; none: what is really left.",
        tr="Retry-After başlığının söylediği süre; none: gerçekte kalan süre.",
    )
    login_limit: int | None = switch(
        None,
        en="How many logins with one rest_secret_key, right or wrong, get an answer within login_window_seconds; the others get 429.",
        tr="Bir rest_secret_key ile login_window_seconds içinde doğru ya da yanlış kaç girişe izin verildiği; fazlası 429 alır.",
    )
    login_window_seconds: float = switch(
        60.0,
        en="The seconds of login_limit.",
        tr="login_limit için sayılan saniye.",
    )
    tokens_at_once: int | None = switch(
        None,
        en="How many tokens of one credential are valid at once; a login more ends the oldest.",
        tr="Bir hesabın aynı anda kaç anahtarı geçerli olabilir; fazladan her giriş en eskisini bitirir.",
    )
    menu_cooldown_seconds: float = switch(
        60.0,
        en="Seconds between two calls of the menu listing.",
        tr="İki menü isteği arasındaki saniye.",
    )


@dataclass(frozen=True, kw_only=True)
class Lists:
    """What the lists hold."""

    cancelled_are_delivered: bool = switch(
        True,
        en='Whether a cancelled order is listed until it is acknowledged, as rule 3 and "Events" suggest.',
        tr="İptal edilen sipariş onaylanana (success) kadar listede görünür mü.",
    )
    changed_are_listed_again: bool = switch(
        False,
        en="Whether an order whose contents the platform changed is listed again although its status stayed the same.",
        tr="Platformun içeriğini değiştirdiği sipariş, durumu aynı kalsa da yeniden listelenir mi.",
    )
    list_covers: Coverage = switch(
        Coverage.ALL,
        en="Which restaurants of the credential one list covers.",
        tr="Bir liste hesabın hangi restoranlarını kapsar: hepsi ya da yalnızca ilki.",
    )
    list_order: ListOrder = switch(
        ListOrder.OLDEST_FIRST,
        en="In which order the orders are listed.",
        tr="Siparişlerin listedeki sırası.",
    )
    list_limit: int | None = switch(
        None,
        en="How many orders one list holds at most; 0 or none: all.",
        tr="Bir listede en çok kaç sipariş olduğu; 0 ya da none: hepsi.",
    )
    ids_in_capitals: bool = switch(
        False,
        en="Whether orders' and restaurants' ids are shown in capitals, and known in no other form.",
        tr="Sipariş ve restoran kimlikleri büyük harfle mi yazılır; o zaman başka biçimi tanınmaz.",
    )
    menu_shape: MenuShape = switch(
        MenuShape.FLAT,
        en="The shape of the menu listing: a list of foods, a list of categories, or an object with a list.",
        tr="Menü listesinin biçimi: ürün listesi, kategori listesi ya da içinde liste olan nesne.",
    )
    timezone: str = switch(
        "Europe/Istanbul",
        en="The zone of the dates in orders.",
        tr="Siparişlerdeki tarihlerin saat dilimi.",
    )
    expiration_timezone: str = switch(
        "Europe/Istanbul",
        en="The zone of expiration_date alone: another one plays a service that is wrong about its own zone.",
        tr="Yalnızca expiration_date için saat dilimi; farklı değer, kendi saat diliminde yanılan bir platformu oynatır.",
    )
    prepaid_suffix: bool = switch(
        True,
        en='Whether payment names carry " (pre-paid)".',
        tr='Ödeme adlarının sonunda " (pre-paid)" var mı.',
    )


@dataclass(frozen=True, kw_only=True)
class Operations:
    """What the operations answer."""

    needs_payment_status_id: int = switch(
        7,
        en="The id of COMPLETE_NEEDS_PAYMENT.",
        tr="COMPLETE_NEEDS_PAYMENT durumunun numarası.",
    )
    disallowed: Disallowed = switch(
        Disallowed.REFUSED,
        en="What a call answers that the order's status does not allow: disallowed_status with disallowed_error, 404, or OK without effect.",
        tr="Siparişin durumuna uymayan istek ne yanıt alır: disallowed_status ile disallowed_error, 404 ya da etkisiz OK.",
    )
    disallowed_status: int = switch(
        422,
        en="The HTTP status of that answer.",
        tr="Bu yanıtın HTTP kodu.",
    )
    disallowed_error: str = switch(
        "sipariş durumu uygun değil",
        en="Its error text.",
        tr="Bu yanıttaki hata metni.",
    )
    complete_from_confirmed: Completable = switch(
        Completable.NONE,
        en="Which orders can be completed from CONFIRMED: none, those without the restaurant's own courier, or all.",
        tr="Hangi siparişler CONFIRMED durumundan tamamlanabilir: hiçbiri, restoranın kendi kuryesi olmayanlar ya da hepsi.",
    )
    pickup_life: Life = switch(
        Life.POS,
        en="Who completes an accepted pickup order: only the POS, or the platform after life_seconds.",
        tr="Onaylanan gel al siparişini kim tamamlar: yalnızca POS ya da life_seconds sonra platform.",
    )
    platform_courier_life: Life = switch(
        Life.POS,
        en="Who moves on an accepted order with the platform's courier: only the POS, or the platform, to IN_DELIVERY and to its end, life_seconds for each step.",
        tr="Platform kuryesiyle giden onaylı siparişi kim ilerletir: yalnızca POS ya da platform (önce IN_DELIVERY, sonra tamamlandı; her adım life_seconds).",
    )
    life_seconds: float = switch(
        60.0,
        en="Seconds before each step that the platform does.",
        tr="Platformun her adımından önce geçen saniye.",
    )
    cancel_unanswered_seconds: float | None = switch(
        None,
        en="After how many seconds the platform cancels an order that nobody accepted; none: never.",
        tr="Kimsenin kabul etmediği siparişi platform kaç saniye sonra iptal eder; none: hiç.",
    )
    error_order: str = switch(
        " ".join(Check),
        en="Which error wins when a call has several: these six words in the order in which they are looked at.",
        tr="İstekte birden çok hata varsa hangisi kazanır: bu altı sözcük, bakılma sırasıyla.",
    )
    longest_preparing_time: int | None = switch(
        None,
        en="An accept with more minutes than these lacks its field; none: any number will do.",
        tr="Bundan çok dakikayla gelen kabul, alanı eksik sayılır; none: her sayı olur.",
    )
    complete_error_status: int | None = switch(
        None,
        en="The HTTP status of every error of complete; none: as for the other operations.",
        tr="complete hatalarının HTTP kodu; none: öteki işlemlerdeki gibi.",
    )
    restaurant_error_status: int | None = switch(
        None,
        en="The same for the restaurants' status, open and close.",
        tr="Restoran durumu, açma ve kapatma için aynısı.",
    )
    food_error_status: int | None = switch(
        None,
        en="The same for foods.",
        tr="Ürünler için aynısı.",
    )
    token_errors_stay_401: bool = switch(
        True,
        en='Whether a bad token is a 401 in those operations too, as "Authentication" says.',
        tr="Geçersiz anahtar bu işlemlerde de 401 mi.",
    )
    new_login_ends_old_token: bool = switch(
        False,
        en="Whether a new login ends the token before it.",
        tr="Yeni giriş bir önceki anahtarı bitirir mi.",
    )
    token_message: TokenMessage = switch(
        TokenMessage.EXPIRED_OR_INVALID,
        en="The message of a 401 where the operation does not fix it.",
        tr="İşlemin kendisi belirlemediğinde 401 yanıtının mesajı.",
    )
