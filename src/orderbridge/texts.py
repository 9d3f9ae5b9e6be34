"""What people read, in Turkish and English: the verdict on an outbox row.

Codes are stable and English; the sentences may change. Each says what happened, then what to do, to somebody who is
busy at a till. An unknown code still gives a sentence, and a fact that is missing a "?": settling a row must not fail
for want of words.
"""

from orderbridge.model import ActionState

LANGUAGES = ("tr", "en")

# The end of a row, or what it waits for: (Turkish, English).
VERDICTS: dict[str, tuple[str, str]] = {
    # Refused here, unsent.
    "bad_arguments": (
        "{argument} alanı {problem}. Düzeltip yeniden gönderin.",
        "{argument} {problem}. Correct it and send it again.",
    ),
    "order_unknown": (
        "Bu sipariş burada kayıtlı değil. Sipariş anahtarını kontrol edin.",
        "This order is not known here. Check its key.",
    ),
    "account_missing": (
        "Bu siparişin hesabı ayarlarda yok. Teknik desteğe haber verin.",
        "The account of this order is not in the configuration. Call technical support.",
    ),
    "account_needed": (
        "Ürünün hangi hesaba ait olduğu belli değil. Restoranı veya hesabı belirtip yeniden gönderin.",
        "It is not clear which account the item belongs to. Name the restaurant or the account and send it again.",
    ),
    "restaurant_unknown": (
        "Bu restorana hiçbir hesapla ulaşılamıyor. Restoran numarasını kontrol edin.",
        "No account reaches this restaurant. Check the restaurant's id.",
    ),
    "order_completed": (
        "Bu sipariş zaten tamamlanmış. Yapılacak bir şey yok.",
        "This order is already complete. There is nothing to do.",
    ),
    "order_cancelled": (
        "Bu sipariş iptal edildi. Hazırlamayın, yola çıkarmayın.",
        "This order was cancelled. Do not prepare it, do not send it out.",
    ),
    "courier_not_restaurant": (
        "Bu siparişi restoranın kuryesi götürmüyor. Yola çıktı bildirimi gerekmez.",
        "This order is not delivered by the restaurant's courier. It need not be reported as on the way.",
    ),
    # Ended without being sent.
    "already": (
        "Sipariş zaten bu durumda. Yapılacak bir şey yok.",
        "The order is in this status already. There is nothing to do.",
    ),
    "expired": (
        "İşlem zamanında gönderilemedi ve artık gönderilmeyecek. Gerekiyorsa servisin panelinden yapın.",
        "This could not be sent in time and will not be sent any more. If it is still needed, do it in the service's panel.",
    ),
    "withdrawn": (
        "İşlem isteğiniz üzerine gönderilmeden geri alındı. Yapılacak bir şey yok.",
        "This was taken back before it was sent, as you asked. There is nothing to do.",
    ),
    "superseded": (
        "Daha yeni bir işlem bunun yerini aldı. Yapılacak bir şey yok.",
        "A newer action took the place of this one. There is nothing to do.",
    ),
    # The service's definite no.
    "order_not_found": (
        "Servis bu siparişi bulamadı. Siparişi servisin panelinden kontrol edin.",
        "The service does not find this order. Look for the order in the service's panel.",
    ),
    "food_not_found": (
        "Servis bu ürünü bulamadı. Ürün numarasını kontrol edin.",
        "The service does not find this item. Check the item's number.",
    ),
    "restaurant_not_found": (
        "Servis bu restoranı bulamadı. Restoran numarasını kontrol edin.",
        "The service does not find this restaurant. Check the restaurant's id.",
    ),
    "missing_field": (
        "Servise göre bir bilgi eksik veya yanlış. Hazırlama süresini veya iptal nedenini kontrol edip yeniden gönderin.",
        "The service says that something is missing or wrong. Check the preparing time or the reason and send it again.",
    ),
    "bad_url_id": (
        "Servis bu numarayı geçersiz buldu. Sipariş, ürün veya restoran numarasını kontrol edin.",
        "The service takes this id for invalid. Check the id of the order, the item or the restaurant.",
    ),
    "refused": (
        "Servis bu işlemi kabul etmedi. Son durumu servisin panelinden kontrol edin.",
        "The service did not accept this. Look at the present status in the service's panel.",
    ),
    # All retries are used up.
    "service_error": (
        "Servis arızalı, denemelere rağmen işlem yapılamadı. Biraz sonra yeniden gönderin veya servisin panelinden yapın.",
        "The service is out of order and this was not done, after several tries. Send it again later or do it in the service's panel.",
    ),
    "outcome_unknown": (
        "İşlemin yapılıp yapılmadığı bilinmiyor. Siparişi, ürünü veya restoranı servisin panelinden kontrol edin.",
        "It is not known whether this was done. Look at the order, item or restaurant in the service's panel.",
    ),
    # Not ended: what a row waits for.
    "login_refused": (
        "Servis giriş bilgilerimizi kabul etmiyor, işlem bekliyor. Teknik desteğe haber verin.",
        "The service does not accept our login, so this waits. Call technical support.",
    ),
    "unreachable": (
        "Servise ulaşılamıyor, bağlantı kurulunca işlem kendiliğinden gönderilecek. İnternet bağlantısını kontrol edin.",
        "The service cannot be reached; this is sent as soon as it can. Check the internet connection.",
    ),
    "tls_failed": (
        "Servise güvenli bağlantı kurulamıyor, işlem bekliyor. Bilgisayarın saatini kontrol edin, teknik desteğe haber verin.",
        "No secure connection to the service can be made, so this waits. Check the computer's clock and call technical support.",
    ),
    "rate_limited": (
        "Servis beklememizi istedi, işlem birazdan kendiliğinden gönderilecek. Biraz bekleyin.",
        "The service asked us to wait; this is sent in a moment. Wait a little.",
    ),
    "timeout": (
        "Servisin yanıtı alınamadı, sonuç kontrol ediliyor. Biraz bekleyin.",
        "The service's answer did not arrive; the result is being checked. Wait a little.",
    ),
    "retrying": (
        "Servis şu anda hata veriyor, işlem birazdan yeniden denenecek. Biraz bekleyin.",
        "The service reports a fault at the moment; this is tried again soon. Wait a little.",
    ),
    "stopping": (
        "Program kapanıyor, işlem program yeniden açılınca gönderilecek. Programı yeniden başlatın.",
        "The program is stopping; this is sent when it runs again. Start the program again.",
    ),
}

# Technical codes that mean the same to a cashier.
SAME = {
    "unauthorized": "login_refused",
    "unauthorized_again": "login_refused",
    "invalid_credentials": "login_refused",
    "login_failed": "unreachable",
    "login_timeout": "unreachable",
    "dns_failed": "unreachable",
    "connection_refused": "unreachable",
    "connect_timeout": "unreachable",
    "proxy_refused": "unreachable",
    "proxy_invalid": "unreachable",
    "bad_gateway": "timeout",
    "connection_lost": "timeout",
    "broken_answer": "timeout",
    "body_too_large": "timeout",
    "no_envelope": "timeout",
    "malformed_data": "timeout",
    "stopped_while_sending": "timeout",
    "internal_error": "timeout",
    "login_stopped": "stopping",
    "closed": "stopping",
}

# What can be wrong with an argument, to stand in "bad_arguments".
PROBLEMS: dict[str, tuple[str, str]] = {
    "missing": ("boş", "is missing"),
    "not_empty": ("bu işlemde boş olmalı", "must be empty for this action"),
    "no_number": ("tam sayı değil", "is no whole number"),
    "out_of_range": ("izin verilen aralığın dışında", "is outside the allowed range"),
    "no_key": ("geçerli bir anahtar değil", "is no valid key"),
    "unknown": ("bilinmiyor", "is not known"),
}

GENERAL = (
    "Beklenmeyen bir durum oluştu ({code}). Bu kodu teknik desteğe bildirin.",
    "Something unexpected happened ({code}). Tell technical support this code.",
)


class _Facts(dict[str, object]):
    def __missing__(self, key: str) -> str:
        return "?"


def text(code: str, language: str, *, state: ActionState | None = None, **facts: object) -> str:
    """The sentence for the error_code of an outbox row.

    An unfinished `state` tells a server error that is still being retried from one that is final. "bad_arguments" takes
    the facts `argument` and `problem`, the latter one of PROBLEMS or words of one's own.
    """
    if code == "service_error" and state in {ActionState.PENDING, ActionState.SENDING}:
        code = "retrying"
    if (problem := facts.get("problem")) in PROBLEMS:
        facts["problem"] = PROBLEMS[str(problem)][_column(language)]
    sentences = VERDICTS.get(SAME.get(code, code), GENERAL)
    return sentences[_column(language)].format_map(_Facts(facts, code=code))


def _column(language: str) -> int:
    return LANGUAGES.index(language)
