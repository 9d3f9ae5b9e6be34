"""The files for Prometheus, Grafana and Compose match the program: names, alerts and mounts."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from orderbridge import config
from orderbridge.observe.metrics import FAMILIES, MetricKind

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS, TESTS = DEPLOY / "prometheus" / "alerts.yml", DEPLOY / "prometheus" / "alerts_test.yml"
DASHBOARD = DEPLOY / "grafana" / "dashboard.json"
OF_PROCESS = {"process_resident_memory_bytes", "process_start_time_seconds"}
# A selector, as {instance="a", code="b"} behind a name; what stands in quotes there is a value.
SELECTED = re.compile(r"(orderbridge_\w+|process_\w+)\s*(?:\{([^}]*)\})?")


def shown() -> dict[str, set[str]]:
    """Every series' name, with its labels."""
    found = {name: set() for name in OF_PROCESS}
    for family in FAMILIES:
        suffixes = ("_bucket", "_sum", "_count") if family.kind == MetricKind.HISTOGRAM else ("",)
        for suffix in suffixes:
            found[family.name + suffix] = {*family.labels, *({"le"} if suffix == "_bucket" else set())}
    return found


@pytest.mark.parametrize("file", [ALERTS, TESTS, DASHBOARD], ids=lambda file: file.name)
def test_every_name_and_label_is_one_that_is_shown(file: Path) -> None:
    text = file.read_text("utf-8").replace('\\"', '"').replace("orderbridge_duration", "")
    there, found = shown(), SELECTED.findall(text)
    assert found
    for name, selector in found:
        if name == "orderbridge_database_duration_seconds":  # in a sentence for people
            continue
        assert name in there, name
        labels = set(re.findall(r'(\w+)\s*(?:=|!=|=~|!~)\s*"', selector))
        assert labels <= there[name] | {"instance", "job"}, name


def test_the_dashboard_has_a_panel_for_every_family() -> None:
    text = DASHBOARD.read_text("utf-8")
    json.loads(text)
    assert [family.name for family in FAMILIES if family.name not in text] == []


def test_every_alert_has_a_firing_and_a_quiet_test() -> None:
    alerts = set(re.findall(r"- alert: (\w+)", ALERTS.read_text("utf-8")))
    text = TESTS.read_text("utf-8")
    silent = set(re.findall(r"alertname: (\w+), exp_alerts: \[\]", text))
    assert silent == set(re.findall(r"alertname: (\w+)\n\s+exp_alerts:\n", text)) == alerts


def test_promtool_agrees() -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    for command in (("check", "rules", ALERTS.name), ("test", "rules", TESTS.name)):
        ran = subprocess.run([tool, *command], cwd=ALERTS.parent, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_what_the_sandbox_profile_of_compose_mounts_is_committed_and_loads(tmp_path: Path) -> None:
    (folder,) = set(re.findall(r"\$\{ORDERBRIDGE_ETC:-\./(\w+)\}", (DEPLOY / "compose.yaml").read_text()))
    etc = shutil.copytree(DEPLOY / folder, tmp_path / folder)
    text = (etc / "config.toml").read_text()
    (etc / "config.toml").write_text(re.sub(r'ca_file = "/var/lib/orderbridge/sandbox-data/.*', "", text))
    (account,) = config.load(etc / "config.toml", environ={}).accounts
    assert account.rest_secret_key.get_secret_value() == "sandbox-kadikoy-secret"
    listed = subprocess.run(["git", "ls-files", "--", folder], cwd=DEPLOY, capture_output=True, text=True, check=False)
    if listed.returncode == 0:  # else this is no checkout
        assert len(listed.stdout.splitlines()) == 3
