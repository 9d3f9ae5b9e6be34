"""Which values are refused, and the error texts."""

import pytest
from tests.config.documents import URL, Write, account, document, problems

from orderbridge import texts
from orderbridge.config import load


def test_every_problem_is_listed_on_its_own_line_with_its_key_and_its_file(write: Write) -> None:
    tables = {"marketplace": 'timezone = "Mars/Olympus"', "more": "[actions]\nretry_waits_seconds = [1, 2]"}
    accounts = account("Kadıköy") + '[[accounts]]\nname = "besiktas"\n'
    file = write(document(top='langauge = "tr"', accounts=accounts, **tables))
    error = problems(file, {"ORDERBRIDGE_LOG__LEVEL": "loud"})
    lines = error.splitlines()[1:]
    assert [line.partition(":")[0].strip() for line in lines] == [
        f"accounts[0].name ({file})", f"accounts[1].app_secret_key ({file})", f"accounts[1].rest_secret_key ({file})",
        f"actions.retry_waits_seconds[2] ({file})", f"langauge ({file})", "log.level (ORDERBRIDGE_LOG__LEVEL)",
        f"marketplace.timezone ({file})",
    ]  # fmt: skip
    assert "did you mean language?" in error


def web(lines: str) -> str:
    return document(more=f"[web]\n{lines}")


def market(line: str, url: str = URL) -> str:
    return document(marketplace=line, url=url)


def acting(line: str) -> str:
    return document(more=f"[actions]\n{line}")


def shop(lines: str) -> str:
    return document(accounts=account(more=lines))


def steps(values: str, more: str = "") -> str:
    return shop(f"auto_accept_steps = {values}\n{more}")


OTHER_DEFAULT = account("besiktas", "other", "default = true")
RESTAURANT = '[[accounts.restaurants]]\nid = "11111111-1111-4111-8111-111111111111"\n'
CASES = {
    "plain http, loopback": (document(url="http://127.0.0.1:8080"), "marketplace.base_url", "https://"),
    "user in the address": (document(url="https://me@api.example.com"), "marketplace.base_url", "a user or a password"),
    "query": (document(url=URL + "/?a=1"), "marketplace.base_url", "'?' or '#'"),
    "fragment": (document(url=URL + "/#a"), "marketplace.base_url", "'?' or '#'"),
    "no host": (document(url="https:///api"), "marketplace.base_url", "names no host"),
    "port": (document(url=URL + ":99999"), "marketplace.base_url", "port"),
    "broken bracket": (document(url="https://[::1"), "marketplace.base_url", "IPv6"),
    "short cooldown": (market("cooldown_seconds = 29.9"), "cooldown_seconds", "use 30 or more"),
    "no cooldown": (market("cooldown_seconds = 0", "https://localhost"), "cooldown_seconds", "more than 0"),
    "endless cooldown": (market("cooldown_seconds = inf"), "cooldown_seconds", "must be a number"),
    "short timeout": (market("timeout_seconds = 0.5"), "timeout_seconds", "use 1 or more"),
    "long timeout": (market("timeout_seconds = 121"), "timeout_seconds", "120 or less"),
    "time zone that is a folder": (market('timezone = "Europe"'), "timezone", "time zone"),
    "time zone outside": (market('timezone = "../../etc/hosts"'), "timezone", "time zone"),
    "id of another status": (market("needs_payment_status_id = 16"), "needs_payment_status_id", "another"),
    "missing certificates": (market('ca_file = "no.pem"'), "marketplace.ca_file", "cannot be read"),
    "board for others without their names": (web('listen = "0.0.0.0:1"\nboard = "till"'), "web", "hosts"),
    "board at another address": (web('listen = "[fd00::1]:1"\nboard = "beside"'), "web", "hosts"),
    "board nowhere": (web('listen = ""\nboard = "beside"'), "web", "listen"),
    "board of another kind": (web('board = "on"'), "web.board", "beside"),
    "certificate without its key": (web('certificate = "/dev/null"'), "web", "go together"),
    "host that is none": (web('hosts = ["kasa pc"]'), "web.hosts", "kasa pc"),
    "database that is a text": (document(top='database = "x"'), "database", "must be a table"),
    "account that is a text": (document(top='accounts = ["x"]', accounts=""), "accounts[0]", "must be a table"),
    "date for a text": (market("timezone = 2026-01-01"), "marketplace.timezone", "text in quotes"),
    "endless number": (acting(f"max_in_flight = '{'9' * 5000}'"), "max_in_flight", "maximum size"),
    "not an address": ("[marketplace]\n" + account(), "marketplace.base_url", "is missing"),
    "no marketplace": (account(), "marketplace", "is missing"),
    "no accounts": (document(accounts=""), "accounts", "at least one account is needed"),
    "empty accounts": (document(top="accounts = []", accounts=""), "accounts", "[[accounts]]"),
    "marketplace that is a text": ('marketplace = "x"\n' + account(), "marketplace", "must be a table"),
    "language": (document(top='language = "de"'), "language", "'tr' or 'en'"),
    "number for a text": (document(top="language = 1"), "language", "'tr' or 'en'"),
    "text for a number": (acting('max_in_flight = "many"'), "max_in_flight", "whole number"),
    "no thread": (acting("max_in_flight = 0"), "max_in_flight", "1 or more"),
    "negative wait": (acting("retry_waits_seconds = [-1, 1, 1]"), "retry_waits_seconds[0]", "0 or more"),
    "four waits": (acting("retry_waits_seconds = [1, 1, 1, 1]"), "retry_waits_seconds", "takes at most 3"),
    "listen without a port": (web('listen = "127.0.0.1"'), "web.listen", "host:port"),
    "listen without a host": (web('listen = ":8480"'), "web.listen", "host:port"),
    "listen on a word": (web('listen = "a:b"'), "web.listen", "port"),
    "log format": (document(more='[log]\nformat = "xml"'), "log.format", "'json'"),
    "unknown key": (market("verify = false"), "marketplace.verify", "no such key"),
    "unknown key of an account": (shop('pasword = "x"'), "accounts[0].pasword", "no such key"),
    "account name": (document(accounts=account(".hidden")), "accounts[0].name", "not an account name"),
    "long account name": (document(accounts=account("a" * 65)), "accounts[0].name", "not an account name"),
    "same name twice": (document(accounts=account() + account(rest="other")), "accounts", "'kadikoy' is used twice"),
    "two defaults": (shop("default = true") + OTHER_DEFAULT, "accounts", "(kadikoy, besiktas); keep one"),
    "empty secret": (document(accounts=account(rest=" ")), "accounts[0].rest_secret_key", "is empty"),
    "two lines in a secret": (document(accounts=account(rest="a\\nb")), "accounts[0].rest_secret_key", "line break"),
    "auto-accept in no time": (shop("auto_accept_minutes = 0"), "auto_accept_minutes", "1 or more"),
    "auto-accept in two days": (shop("auto_accept_minutes = 2880"), "auto_accept_minutes", "1440"),
    "no steps": (steps("[]"), "auto_accept_steps", "must begin with 0 orders"),
    "steps from the fifth order on": (steps("[[5, 20], [9, 0]]"), "auto_accept_steps", "begin with 0"),
    "unsorted steps": (steps("[[0, 20], [9, 30], [5, 0]]"), "auto_accept_steps", "must grow"),
    "the same step twice": (steps("[[0, 20], [9, 30], [9, 0]]"), "auto_accept_steps", "must grow"),
    "steps without an end": (steps("[[0, 20], [9, 30]]"), "auto_accept_steps", "end with a step"),
    "steps that end twice": (steps("[[0, 20], [9, 0], [12, 0]]"), "auto_accept_steps", "only the last"),
    "negative orders": (steps("[[-1, 20], [9, 0]]"), "auto_accept_steps[0][0]", "0 or more"),
    "negative minutes": (steps("[[0, -20], [9, 0]]"), "auto_accept_steps[0][1]", "0 or more"),
    "a step of two days": (steps("[[0, 2880], [9, 0]]"), "auto_accept_steps[0][1]", "1440 or less"),
    "steps and minutes": (steps("[[0, 20], [9, 0]]", "auto_accept_minutes = 20"), "accounts[0]", "keep one"),
    "restaurant listed twice": (shop(RESTAURANT * 2), "accounts[0].restaurants", "listed twice"),
    "restaurant id": (shop('[[accounts.restaurants]]\nid = "17"'), "restaurants[0].id", "not a restaurant id"),
}


@pytest.mark.interface("Conventions")
@pytest.mark.parametrize("text, key, remedy", CASES.values(), ids=CASES)
def test_a_wrong_value_is_refused_with_its_key_and_remedy(text: str, key: str, remedy: str, write: Write) -> None:
    error = problems(write(text))
    _, line = error.splitlines()  # one problem, one line
    assert key in line and remedy in error, error


def test_the_turkish_error_has_no_english_word(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_spoken", "tr")
    assert "'off', 'beside' veya 'till'" in problems(write(document(more='[web]\nboard = "evet"')))


def test_short_times_are_accepted_for_a_loopback_address_and_for_none_that_only_seems_so(write: Write) -> None:
    for host in ("localhost", "127.0.0.1:8443", "127.9.9.9", "[::1]:8443"):
        short = "cooldown_seconds = 0.2\ntimeout_seconds = 0.1\nneeds_payment_status_id = 17"
        kept = load(write(document(url=f"https://{host}", marketplace=short)), environ={}).marketplace
        assert (kept.cooldown_seconds, kept.needs_payment_status_id) == (0.2, 17)
    for host in ("localhost.example.com", "127.0.0.1.example.com", "10.0.0.1", "[::2]"):
        assert "loopback" in problems(write(document(url=f"https://{host}", marketplace="cooldown_seconds = 5")))


@pytest.mark.parametrize("given, kept", [
    ("https://api.example.com/", "https://api.example.com"),
    ("https://api.example.com/v1//", "https://api.example.com/v1"),
    ("HTTPS://API.Example.com:443/V1", "https://api.example.com/V1"),
    ("https://[::1]:8443/", "https://[::1]:8443"),
])  # fmt: skip
def test_the_address_is_kept_in_one_form(given: str, kept: str, write: Write) -> None:
    assert load(write(document(url=given)), environ={}).marketplace.base_url == kept


def test_the_certificates_path_is_relative_to_the_file_and_hosts_are_normalized(write: Write) -> None:
    folder = write("x", "board.pem").parent
    lines = """listen = "0.0.0.0:1"\nboard = "till"\nhosts = ["Kasa-PC", "FD00:0::A", "192.168.1.10"]"""
    made = load(write(web(f'{lines}\ncertificate = "board.pem"\ncertificate_key = "board.pem"')), environ={}).web
    assert (made.certificate, made.certificate_key) == (folder / "board.pem",) * 2
    assert (made.hosts, made.is_local) == (("kasa-pc", "fd00::a", "192.168.1.10"), False)


def test_a_missing_certificate_is_no_error_of_the_configuration(write: Write) -> None:
    """Orders are still received; only the page fails, and reports it."""
    assert load(write(web('certificate = "x"\ncertificate_key = "y"')), environ={}).web.certificate is not None
