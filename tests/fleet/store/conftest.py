"""The databases of the store's tests."""

from tests.store.conftest import database, kind, mariadb_pos, path, pos, postgresql_pos, url  # noqa: F401 - fixtures
