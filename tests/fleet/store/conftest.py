"""The databases of the store's tests."""

from tests.store.conftest import database, kind, mariadb_pos, path, pos, postgresql_pos, url

__all__ = ["database", "kind", "mariadb_pos", "path", "pos", "postgresql_pos", "url"]
