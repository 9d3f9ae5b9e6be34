"""db grants: what a DBA runs."""

import pytest
from sqlalchemy import make_url
from tests.cli.shell import document
from tests.databases import MARIADB, SERVERS


def test_the_grants_on_sqlite_are_words(run, pos):
    ended = run("db", "grants", "pos")
    assert (ended.code, ended.err) == (0, "")
    assert "no roles" in ended.out


@pytest.mark.parametrize("kind", SERVERS)
def test_the_grants_on_a_server_name_the_role_and_the_place(kind, run, configure, request):
    url = request.getfixturevalue(f"{kind}_database").engine.url.render_as_string(hide_password=False)
    configure(document(database=f'url = "{url}"'))
    ended = run("db", "grants", "till")
    assert (ended.code, ended.err) == (0, "")
    expected = (
        f"ON `{make_url(url).database}`.delivery_orders TO `till`;"
        if kind == MARIADB
        else ('ON "public".delivery_orders TO "till";')
    )
    assert expected in ended.out
