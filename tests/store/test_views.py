"""What stands between a till and our tables: views that work whoever made them, and are told when they do not."""

from tests import databases
from tests.store.samples import Pos

from orderbridge.store import schema
from orderbridge.store.database import Database
from orderbridge.store.inspection import broken_views
from orderbridge.store.tables import metadata

VIEWS = [name for name, table in metadata.tables.items() if table.is_view]


RENAME = {"mariadb": "RENAME TABLE {} TO {}", "postgresql": "ALTER VIEW {} RENAME TO {}"}


@databases.only(*databases.SERVERS)
def test_a_broken_view_is_found(database: Database, pos: Pos):
    assert database.read_now(broken_views) == ()
    pos.execute(RENAME[pos.kind].format(VIEWS[0], "pos_view"))
    try:
        assert database.read_now(broken_views) == (VIEWS[0],)
    finally:
        pos.execute(RENAME[pos.kind].format("pos_view", VIEWS[0]))


def test_views_outlive_the_user_who_made_them(mariadb_server: str):
    with databases.own_database(mariadb_server, "obs_maker") as url, Pos.at(url) as root:
        root.execute("CREATE USER obs_maker@'%' IDENTIFIED BY 'x'")
        root.execute("GRANT ALL ON obs_maker.* TO obs_maker@'%'")
        try:
            maker = Database(url.replace("//root@", "//obs_maker:x@"), inline=True)
            maker.write_now(schema.upgrade)
            maker.close()
        finally:
            root.execute("DROP USER obs_maker@'%'")
        for view in VIEWS:
            root.execute(f"SELECT * FROM {view}")
