"""`orderbridge erase`: asks, shows the number of records, and leaves no trace of the customer in the file."""

import pytest
from tests.cli.shell import document
from tests.store.samples import KEY, NOW, NOW_TEXT, key, opened, put_document, put_order

from orderbridge.marketplace.documents import read_stored
from orderbridge.store import journal

CUSTOMER = {"customer_name": "Canan Kanarya", "customer_phone": "+90 555 123 45 67", "address": "Serçe Sokak"}
CUSTOMER |= {"address_description": "mavi kapinin yani", "note": "zili calmayin lutfen"}
CUSTOMER["payload"] = '{"customer": "Canan Kanarya", "more": "' + "zili calmayin lutfen " * 400 + '"}'
CANARIES = ("Canan", "555 123", "Serçe", "mavi kapinin", "zili calmayin")


@pytest.fixture
def customer(pos):
    """An order that is over and was changed before, so that old copies of it lie in free pages."""
    for number in range(30):
        put_order(pos, key(number), customer_name="Baska Biri", payload="x" * 3000, ended_utc=NOW_TEXT)
    put_order(pos, KEY, ended_utc=NOW_TEXT, order_number=100234, **CUSTOMER)
    pos.execute("UPDATE delivery_orders SET pos_reference = 'a longer one than before', pos_revision = 1")
    pos.execute("DELETE FROM delivery_orders WHERE payment_key = ?", (key(3),))


def left(folder) -> list[str]:
    held = b"".join(file.read_bytes() for file in folder.glob("pos.db*"))
    return [word for word in CANARIES if word.encode() in held]


@pytest.mark.parametrize("wanted", [("--phone", "05551234567"), ("--order", "100234"), ("--order", KEY.upper())])
def test_afterwards_the_file_does_not_hold_the_customer(wanted, run, customer, pos, path):
    assert left(path.parent) == list(CANARIES)
    ended = run("erase", *wanted, "--yes", "--json")
    assert (ended.code, ended.json["orders"], ended.json["rewritten"], left(path.parent)) == (0, 1, True, [])
    assert pos.execute("SELECT count(*) FROM delivery_orders WHERE customer_name = 'Baska Biri'").fetchone()[0] == 29


def test_the_journal_of_documents_forgets_the_customer_too(run, customer, path):
    folder, documents = path.parent / "pos.db.documents", {KEY: "Canan", key(1): "Baska"}.items()
    kept = [read_stored(f'{{"payment_key": "{order}", "name": "{name}"}}') for order, name in documents]
    journal.append(folder, [journal.line("kadikoy", one, NOW) for one in kept], NOW)
    (file,) = folder.iterdir()
    assert "Canan" in file.read_text()
    assert run("erase", "--phone", "05551234567", "--yes", "--json").json["journal"] == 1
    assert "Canan" not in file.read_text() and "Baska" in file.read_text()
    file.unlink()
    file.mkdir()
    ended = run("erase", "--order", KEY, "--yes")
    assert ended.code == 1 and "copies in it are still there" in ended.err


def test_with_an_unwritable_journal_nothing_is_erased_so_that_the_command_can_be_repeated(run, customer, path):
    folder = path.parent / "pos.db.documents"
    folder.write_text("in the way")
    assert run("erase", "--phone", "05551234567", "--yes").code == 1
    folder.unlink()
    document = read_stored(f'{{"payment_key": "{KEY}", "name": "Canan"}}')
    journal.append(folder, [journal.line("kadikoy", document, NOW)], NOW)
    assert run("erase", "--phone", "05551234567", "--yes", "--json").json["journal"] == 1
    assert "Canan" not in b"".join(file.read_bytes() for file in folder.iterdir()).decode()


def test_erase_reports_that_bytes_may_be_left_while_the_file_is_read(run, configure, customer, path):
    configure(document(database='url = "sqlite:///pos.db"\nbusy_timeout_seconds = 0.05'))
    with opened(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM delivery_orders").fetchone()
        ended = run("erase", "--phone", "05551234567", "--yes")
    assert ended.code == 1 and "the rows are erased, but" in ended.err


def test_erase_asks_first_and_its_output_names_no_customer(run, customer, pos):
    ended = run("erase", "--phone", "05551234567")
    assert ended.code == 1 and "Found: 1 orders" in ended.err
    assert pos.execute("SELECT customer_name FROM delivery_orders WHERE payment_key = ?", (KEY,)).fetchone()[0]
    unwritten = run("erase", "--phone", "05551234567", "--yes", "--no-rewrite")
    assert unwritten.code == 0 and "old data may be left" in unwritten.err
    printed = "".join(one.out + one.err for one in (ended, unwritten))
    assert [word for word in ("Canan", "555", "Serçe") if word in printed] == []
    ended = run("erase", "--phone", "05551234568", "--yes")
    assert ended.code == 1 and "Found: 0 orders" in ended.err
    assert run("erase", "--phone", "05551234568", "--yes", "--rewrite").code == 0  # what was erased before, without it
    assert [run("erase", *wrong).code for wrong in ((), ("--phone", "12"), ("--phone", ""))] == [2, 2, 2]


def test_an_open_order_stays_and_the_reason_is_printed(run, pos):
    put_order(pos, **CUSTOMER)
    ended = run("erase", "--phone", "05551234567", "--yes")
    assert "1 open orders stay as they are, because the courier needs" in ended.err
    assert pos.execute("SELECT customer_name FROM delivery_orders").fetchone()[0] == "Canan Kanarya"
    assert "is stored again" not in ended.err
    ended = run("erase", "--phone", "05551234567", "--yes", "--force", "--json")
    assert ended.json["orders"] == 1 and "is stored again" in ended.err
    assert pos.execute("SELECT customer_name FROM delivery_orders").fetchone()[0] is None


def test_a_quarantined_document_is_found_by_its_key(run, pos):
    put_document(pos, payload="Canan", payment_key=KEY, reason="database_refused")
    assert run("erase", "--order", KEY, "--yes", "--json").json["documents"] == 1
