"""What a connection takes from the environment."""

import base64

import pytest
from tests.wording import says

from orderbridge.errors import NotSent
from orderbridge.net.proxies import Proxy, authorities, proxy_for
from orderbridge.texts import sentence

HOST = "api.example.com"
ONE = {"HTTPS_PROXY": "http://proxy.local:3128"}


@pytest.mark.parametrize("environ, told", [
    ({}, None),
    (ONE, "proxy.local:3128 from HTTPS_PROXY"),
    ({"https_proxy": "proxy.local:3128"}, "proxy.local:3128 from https_proxy"),
    ({"ALL_PROXY": "http://proxy.local"}, "proxy.local:80 from ALL_PROXY"),
    ({"HTTPS_PROXY": "https://proxy.local"}, "proxy.local:443 from HTTPS_PROXY"),
    ({"HTTPS_PROXY": "http://[::1]:3128"}, "[::1]:3128 from HTTPS_PROXY"),
    ({**ONE, "ALL_PROXY": "http://other:1"}, "proxy.local:3128 from HTTPS_PROXY"),
    ({**ONE, "https_proxy": "http://small:1"}, "small:1 from https_proxy"),
    ({**ONE, "https_proxy": "", "all_proxy": "http://all:1"}, "all:1 from all_proxy"),
    ({"HTTP_PROXY": "http://proxy.local:3128"}, None),
    ({"HTTPS_PROXY": "http://user:geheim@proxy.local:3128"}, "proxy.local:3128 from HTTPS_PROXY"),
])  # fmt: skip
def test_the_environment_names_the_proxy(environ, told):
    proxy = proxy_for(HOST, environ=environ)
    assert (None if proxy is None else sentence(proxy.name), "geheim" in repr(proxy)) == (told, False)


EXCEPTED = [
    *((one, HOST) for one in ("*", HOST, "API.example.COM", "example.com", ".example.com", "*.example.com")),
    *((one, HOST) for one in ("other, example.com ,third", "example.com:443", "https://example.com")),
    *(("127.0.0.1", "127.0.0.1"), ("10.0.0.0/8", "10.1.2.3"), ("::1", "::1"), ("[::1]:443", "::1")),
    ("localhost", "localhost"),
]
NOT_EXCEPTED = [
    *((one, HOST) for one in ("", "xample.com", "example.com:8443", "10.0.0.0/8", ",")),
    *((".example.com", "example.com"), ("10.0.0.0/8", "11.1.2.3"), ("[::1]:8443", "::1")),
]


@pytest.mark.parametrize("excepted, host", EXCEPTED + NOT_EXCEPTED)
def test_no_proxy_excepts_hosts(excepted, host):
    used = (excepted, host) in NOT_EXCEPTED
    assert (proxy_for(host, environ={**ONE, "NO_PROXY": excepted}) is not None) == used
    assert (proxy_for(host, environ={**ONE, "no_proxy": excepted, "NO_PROXY": "*"}) is not None) == used


def test_a_password_of_the_proxy_is_unescaped():
    proxy = proxy_for(HOST, environ={"HTTPS_PROXY": "http://us%40er:p%3Aw@proxy.local:3128"})
    assert proxy == Proxy("proxy.local", 3128, False, f"Basic {base64.b64encode(b'us@er:p:w').decode()}", "HTTPS_PROXY")


def test_an_unusable_proxy_is_reported_without_its_value():
    for value in ("socks5://geheim:1", "http://", "http://[geheim", "http://u:geheim@x:99999", "http://u:geheim@x:no"):
        with pytest.raises(NotSent, check=says("HTTPS_PROXY does not name")) as caught:
            proxy_for(HOST, environ={"HTTPS_PROXY": value})
        assert "geheim" not in sentence(caught.value)


def test_authorities_are_named_when_they_are_set():
    assert authorities({"SSL_CERT_FILE": "/x.pem", "SSL_CERT_DIR": ""}) == {"SSL_CERT_FILE": "/x.pem"}
