"""The compose file's own sandbox needs nothing set up: what it mounts is committed and loads."""

import re
import shutil
import subprocess
from pathlib import Path

from orderbridge import config

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE = (DEPLOY / "compose.yaml").read_text()


def test_what_the_sandbox_profile_mounts_is_committed_and_loads(tmp_path: Path):
    (folder,) = set(re.findall(r"\$\{ORDERBRIDGE_ETC:-\./(\w+)\}", COMPOSE))
    etc = shutil.copytree(DEPLOY / folder, tmp_path / folder)
    text = (etc / "config.toml").read_text()
    (etc / "config.toml").write_text(re.sub(r'ca_file = "/var/lib/orderbridge/sandbox-data/.*', "", text))
    (account,) = config.load(etc / "config.toml", environ={}).accounts
    assert account.rest_secret_key.get_secret_value() == "sandbox-kadikoy-secret"
    listed = subprocess.run(["git", "ls-files", "--", folder], cwd=DEPLOY, capture_output=True, text=True, check=False)
    if listed.returncode == 0:  # else this is no checkout
        assert len(listed.stdout.splitlines()) == 3
