"""The files for several replicas match the program: the configuration loads, and the limits are long enough."""

import re
import textwrap
from base64 import b64encode
from pathlib import Path

from orderbridge import config, daemon
from orderbridge.store import workers
from orderbridge.web.routes import PROBES

DEPLOY = Path(__file__).parents[2] / "deploy"
KUBERNETES = (DEPLOY / "kubernetes" / "orderbridge.yaml").read_text()
COMPOSE = (DEPLOY / "compose.fleet.yaml").read_text()
LAST_WORDS_S = daemon.STOP_S + daemon.NOTE_S + workers.CLOSE_WITHIN_S
GRACE = re.findall(r"GracePeriodSeconds: (\d+)", KUBERNETES) + re.findall(r"grace_period: (\d+)s +# the", COMPOSE)


def loaded(text: str, place: Path, environ: dict[str, str] | None = None) -> config.Settings:
    """Load the configuration, with a key file in place of the mounted one."""
    (place / "master.key").write_bytes(b64encode(bytes(range(32))))
    (place / "master.key").chmod(0o600)
    (place / "config.toml").write_text(re.sub(r'"/(?:run|etc)/\w+/master.key"', f'"{place}/master.key"', text))
    return config.load(place / "config.toml", environ=environ or {})


def test_the_configuration_for_kubernetes_loads(tmp_path: Path):
    block = re.search(r"^  config.toml: \|\n(.*?)^---", KUBERNETES, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert "ORDERBRIDGE_DATABASE__URL" in KUBERNETES
    settings = loaded(textwrap.dedent(block[1]), tmp_path, {"ORDERBRIDGE_DATABASE__URL": "postgresql://u@a,b/d"})
    assert settings.fleet.from_database
    assert settings.database.url == "postgresql+psycopg://u@/d?host=a,b"
    assert f"containerPort: {settings.web.listen.rpartition(':')[2]}" in KUBERNETES


def test_the_configurations_of_the_page_and_for_compose_load(tmp_path: Path):
    (block,) = re.findall(r"```toml\n(.*?)```", (DEPLOY.parent / "docs" / "fleet.md").read_text("utf-8"), re.DOTALL)
    settings = loaded(block, tmp_path)
    assert settings.fleet.from_database
    assert "host=db-a,db-b" in settings.database.url
    text = re.search(r"^# 2. Write config/fleet.toml.*?\n(.*?)^# 3. ", COMPOSE, re.MULTILINE | re.DOTALL)
    assert text is not None
    block = re.sub(r"^# *", "", text[1], flags=re.MULTILINE).replace("https://…", "https://m.example")
    assert loaded(block, tmp_path).fleet.from_database


def test_a_replica_has_time_to_end_and_the_probes_are_what_is_served():
    assert len(GRACE) == 2
    assert all(int(seconds) > LAST_WORDS_S for seconds in GRACE)
    assert set(re.findall(r"path: (/\w+z)", KUBERNETES)) <= PROBES
