"""The commands of the control interface: the table from which routes, refusals by name and docs/sandbox.md are made."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Final

from . import handlers as do
from .command import PREFIX, Command, FieldKind, Given, Part
from .faults import EVERY_OPERATION, Fault, FaultKind
from .options import SWITCHES, Language
from .presets import PRESETS
from .rules import Operation
from .world import World


def show_help(world: World, given: Given) -> Any:
    language = world.options.language
    return {
        "about": "Control of the sandbox; not part of the service's interface. docs/sandbox.md has all of it.",
        "commands": [f"{c.method} {PREFIX}{c.path}: {_about(c, language)}{_fields(c)}" for c in COMMANDS],
        "operations": [EVERY_OPERATION, *Operation],
        "fault_kinds": list(FaultKind),
        "fault_fields": [one.name for one in fields(Fault)],
        "options": world.options.as_json(),
        "switches": {name: f"{line.about[language]} ({line.told})" for name, line in SWITCHES.items()},
        "presets": {name: preset.about[language] for name, preset in PRESETS.items()},
    }


def _about(command: Command, language: str) -> str:
    return command.tr if language == Language.TURKISH else command.en


def _fields(command: Command) -> str:
    names = [*(command.body or {}), *(f"?{name}" for name in command.query)]
    return f" {{{', '.join(names)}}}" if names else ""


_DOCUMENT: Final[Mapping[str, Part]] = {
    "document": Part(
        FieldKind.OBJECT,
        "values to put in, whatever they are; `customer` and `address` field by field",
        "siparişe konacak değerler, ne olursa olsun; `customer` ve `address` alan alan birleştirilir",
    ),
    "unknown_fields": Part(
        FieldKind.FLAG,
        "true: a name in `document` that no order has is kept; else it is refused",
        "true: `document` içinde hiçbir siparişte olmayan bir ad da kalır; yoksa reddedilir",
    ),
    "without": Part(
        FieldKind.TEXTS, "fields to leave out, `customer.phone` too", "çıkarılacak alanlar, `customer.phone` gibi"
    ),
}
_SECRETS: Final[Mapping[str, Part]] = {
    "app_secret_key": Part(FieldKind.TEXT, "default: the sandbox's", "verilmezse sandbox'ınki"),
    "rest_secret_key": Part(FieldKind.TEXT, "default: sandbox-NAME-secret", "verilmezse sandbox-AD-secret"),
}

COMMANDS: Final[tuple[Command, ...]] = (
    Command(method="GET", path="/", act=show_help, en="Everything that can be asked for.", tr="İstenebilecek her şey."),
    Command(
        method="GET",
        path="/scenery",
        act=do.scenery,
        en="Credentials, restaurants and foods with their status.",
        tr="Hesaplar, restoranlar ve ürünler, durumlarıyla.",
    ),
    Command(
        method="GET",
        path="/orders",
        act=do.list_orders,
        en="All orders with their truth: status, history, acknowledgements, document.",
        tr="Bütün siparişlerin gerçek hâli: durum, geçmiş, onaylar, belge.",
    ),
    Command(
        method="POST",
        path="/orders",
        act=do.place_orders,
        en="Place orders.",
        tr="Sipariş verir.",
        body={
            "count": Part(FieldKind.WHOLE, "how many, 1 to 1000; default: 1", "kaç tane, 1-1000; verilmezse 1"),
            "restaurant_id": Part(
                FieldKind.TEXT, "where; default: any open one", "hangi restoran; verilmezse açık biri"
            ),
            **_DOCUMENT,
        },
    ),
    Command(
        method="GET",
        path="/orders/{key}",
        act=do.show_order,
        en="One order by its payment_key.",
        tr="payment_key ile bir sipariş.",
    ),
    Command(
        method="PATCH",
        path="/orders/{key}",
        act=do.change_order,
        en="Change a placed order's document as the platform does; it is listed again only with changed_are_listed_again.",
        tr="Verilmiş siparişin belgesini platform gibi değiştirir; yalnızca changed_are_listed_again ile yeniden listelenir.",
        body=_DOCUMENT,
    ),
    Command(
        method="POST",
        path="/orders/{key}/foods",
        act=do.change_line,
        en="Change one food of a placed order, add it, or take it out; the totals follow.",
        tr="Verilmiş siparişte bir ürünü değiştirir, ekler ya da çıkarır; toplamlar buna uyar.",
        body={
            "food_id": Part(FieldKind.WHOLE, "which", "hangi ürün", needed=True),
            "quantity": Part(FieldKind.WHOLE, "how many; 0: none any more", "kaç adet; 0: artık yok"),
            "price": Part(FieldKind.NUMBER, "of one", "birinin fiyatı"),
            "note": Part(FieldKind.TEXT, "its note", "ürün notu"),
        },
    ),
    Command(
        method="POST",
        path="/orders/{key}/cancel",
        act=do.cancel_order,
        en="Cancel as the customer does.",
        tr="Müşteri gibi iptal eder.",
    ),
    Command(
        method="POST",
        path="/orders/{key}/status",
        act=do.change_status,
        en="Change the status as the platform does, to any, known or not.",
        tr="Durumu platform gibi değiştirir; bilinen ya da bilinmeyen her durum olur.",
        body={
            "status_id": Part(FieldKind.WHOLE, "the new status", "yeni durum", needed=True),
            "status_text": Part(FieldKind.TEXT, "its text", "durumun metni"),
        },
    ),
    Command(
        method="POST",
        path="/restaurants",
        act=do.add_restaurant,
        en="Add a restaurant, open; then an account that reaches it.",
        tr="Açık bir restoran ekler; ardından ona erişen bir hesap ekleyin.",
        body={
            "name": Part(FieldKind.TEXT, "its name", "adı", needed=True),
            "menu": Part(
                FieldKind.TEXT, "whose menu it has; default: its own, empty", "hangi menü; verilmezse kendi boş menüsü"
            ),
            "id": Part(FieldKind.TEXT, "a UUID; default: a new one", "bir UUID; verilmezse yenisi"),
        },
    ),
    Command(
        method="POST",
        path="/restaurants/{id}/open",
        act=do.open_restaurant,
        en="Open it as the platform does.",
        tr="Restoranı platform gibi açar.",
    ),
    Command(
        method="POST",
        path="/restaurants/{id}/close",
        act=do.close_restaurant,
        en="Close it as the platform does.",
        tr="Restoranı platform gibi kapatır.",
    ),
    Command(
        method="POST",
        path="/foods",
        act=do.add_food,
        en="Put a food on a menu.",
        tr="Menüye ürün ekler.",
        body={
            "menu": Part(FieldKind.TEXT, "which menu", "hangi menü", needed=True),
            "id": Part(FieldKind.WHOLE, "its food_id", "food_id", needed=True),
            "name": Part(FieldKind.TEXT, "its name", "adı", needed=True),
            "price": Part(FieldKind.NUMBER, "of one", "birinin fiyatı", needed=True),
            "category": Part(FieldKind.TEXT, "its category", "kategorisi"),
        },
    ),
    Command(
        method="PATCH",
        path="/foods/{id}",
        act=do.change_food,
        en="Change a food of the menu; orders that were placed stay as they are.",
        tr="Menüdeki ürünü değiştirir; verilmiş siparişler olduğu gibi kalır.",
        body={
            "menu": Part(
                FieldKind.TEXT, "which menu, where several have the id", "aynı numara birkaç menüdeyse hangisi"
            ),
            "name": Part(FieldKind.TEXT, "another name", "yeni ad"),
            "category": Part(FieldKind.TEXT, "another category", "yeni kategori"),
            "price": Part(FieldKind.NUMBER, "another price", "yeni fiyat"),
            "status": Part(FieldKind.TEXT, "ACTIVE or INACTIVE", "ACTIVE ya da INACTIVE"),
        },
    ),
    Command(
        method="POST",
        path="/accounts",
        act=do.add_account,
        en="Add a credential; lists of accounts may overlap.",
        tr="Hesap ekler; hesapların restoranları ortak olabilir.",
        body={
            "name": Part(FieldKind.TEXT, "its name here", "buradaki adı", needed=True),
            "restaurant_ids": Part(FieldKind.TEXTS, "what it reaches", "eriştiği restoranlar", needed=True),
            **_SECRETS,
        },
    ),
    Command(
        method="PATCH",
        path="/accounts/{name}",
        act=do.change_account,
        en="Give a credential other restaurants or secrets; its tokens stay valid.",
        tr="Hesabın restoranlarını ya da gizli anahtarlarını değiştirir; erişim anahtarları geçerli kalır.",
        body={
            "restaurant_ids": Part(FieldKind.TEXTS, "what it reaches", "eriştiği restoranlar"),
            "app_secret_key": Part(FieldKind.TEXT, "another one", "yenisi"),
            "rest_secret_key": Part(FieldKind.TEXT, "another one", "yenisi"),
        },
    ),
    Command(
        method="POST",
        path="/accounts/refuse",
        act=do.refuse_account,
        en="Take a credential away until the reset.",
        tr="Hesabı sıfırlanana kadar geçersiz kılar.",
        body={"account": Part(FieldKind.TEXT, "its name", "adı", needed=True)},
    ),
    Command(
        method="POST",
        path="/tokens/end",
        act=do.end_tokens,
        en="Make tokens invalid.",
        tr="Erişim anahtarlarını geçersiz kılar.",
        body={"account": Part(FieldKind.TEXT, "whose; default: all", "kiminkiler; verilmezse hepsi")},
    ),
    Command(
        method="GET",
        path="/ledger",
        act=do.ledger,
        en="All calls, what they did, what was answered, and what was wrong with them.",
        tr="Bütün istekler, ne yaptıkları, aldıkları yanıt ve yanlışları.",
        query={
            "operation": Part(FieldKind.TEXT, "only of this one, or `unknown`", "yalnızca bu işlem ya da `unknown`"),
            "account": Part(FieldKind.TEXT, "only of this one", "yalnızca bu hesap"),
        },
    ),
    Command(method="GET", path="/options", act=do.show_options, en="The switches.", tr="Ayarlar."),
    Command(
        method="PATCH",
        path="/options",
        act=do.set_options,
        en="Turn switches: {NAME: VALUE}.",
        tr="Ayarları değiştirir: {AD: DEĞER}.",
        body=None,
    ),
    Command(
        method="POST",
        path="/presets",
        act=do.play_preset,
        en="Turn the switches of a preset.",
        tr="Hazır bir ayar takımını uygular.",
        body={"name": Part(FieldKind.TEXT, "its name", "adı", needed=True)},
    ),
    Command(
        method="GET", path="/faults", act=do.list_faults, en="The faults that are to come.", tr="Bekleyen arızalar."
    ),
    Command(
        method="POST",
        path="/faults",
        act=do.add_fault,
        en="Add a fault; its fields are below.",
        tr="Arıza ekler; alanları aşağıda.",
        body=None,
    ),
    Command(
        method="DELETE",
        path="/faults",
        act=do.clear_faults,
        en="Forget all faults; what is being delayed goes on.",
        tr="Bütün arızaları unutur; geciktirilenler devam eder.",
    ),
    Command(
        method="POST",
        path="/clock",
        act=do.advance_clock,
        en="Set the platform's clock ahead: tokens and cooldowns end, lives go on.",
        tr="Platformun saatini ileri alır: anahtarlar ve bekleme süreleri biter, siparişler ilerler.",
        body={"advance": Part(FieldKind.NUMBER, "seconds; below 0: back", "saniye; 0'dan küçükse geri", needed=True)},
    ),
    Command(
        method="POST",
        path="/reset",
        act=do.reset,
        en="Back to the start: orders, tokens, switches, faults, ledger.",
        tr="Başa döner: siparişler, anahtarlar, ayarlar, arızalar, kayıt.",
        body={"seed": Part(FieldKind.WHOLE, "another seed", "başka bir tohum sayısı")},
    ),
)
