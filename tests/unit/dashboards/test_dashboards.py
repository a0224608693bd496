"""Dashboards, alert rules and docker-compose.yml are valid, agree with each other, and are documented."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import generate
import pytest
import yaml

from balajoin.config.loading import load
from balajoin.observe.metrics.catalogue import CATALOGUE
from debian_tools import tool

REPOSITORY = Path(__file__).parents[3]
GRAFANA = REPOSITORY / "dashboards" / "grafana"
PROMETHEUS = REPOSITORY / "dashboards" / "prometheus"
RUNBOOK = REPOSITORY / "docs" / "operations.md"
COMPOSE = REPOSITORY / "docker-compose.yml"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))


def rules() -> list[dict[str, Any]]:
    return list(yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"][0]["rules"])


def panels() -> Iterator[dict[str, Any]]:
    for file in DASHBOARDS:
        yield from (panel for panel in json.loads(file.read_text())["panels"] if panel["type"] != "row")


def headings() -> dict[str, str]:
    """The text below each third-level heading of the runbook, by the heading's anchor."""
    parts = re.split(r"^#+ ", RUNBOOK.read_text(), flags=re.MULTILINE)
    titles = dict(part.partition("\n")[::2] for part in parts)
    return {generate.anchor(title): text.strip() for title, text in titles.items()}


# --- Grafana ----------------------------------------------------------------------------------------------------------


def test_the_dashboards_are_what_the_script_writes() -> None:
    assert {file.stem for file in DASHBOARDS} == generate.DASHBOARDS.keys()
    for file in DASHBOARDS:
        assert file.read_text() == generate.written(generate.DASHBOARDS[file.stem]), f"run generate.py: {file.name}"


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_a_dashboard_is_whole(file: Path) -> None:
    dashboard = json.loads(file.read_text())
    assert dashboard["schemaVersion"] >= 41
    assert {variable["name"]: variable["type"] for variable in dashboard["templating"]["list"]} == {
        "datasource": "datasource",
        "join": "query",
    }
    numbers = [panel["id"] for panel in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))
    for one, other in combinations((panel["gridPos"] for panel in dashboard["panels"]), 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
        assert one["x"] + one["w"] <= 24
    assert any("balajoin_start_timestamp_seconds" in a["expr"] for a in dashboard["annotations"]["list"])
    for panel in dashboard["panels"]:
        if panel["type"] == "row":
            continue
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"][0]["value"] is None
        assert panel["datasource"] == generate.SOURCE
        for target in panel["targets"]:
            assert target["datasource"] == generate.SOURCE
            assert '{join=~"$join"' in target["expr"]


def test_every_panel_and_alert_has_its_paragraph_in_the_runbook() -> None:
    explained = headings()
    for panel in panels():
        (link,) = panel["links"]
        assert link["url"] == f"{generate.RUNBOOK}#{generate.anchor(panel['title'])}"
        assert explained.get(generate.anchor(panel["title"])), panel["title"]
        assert panel["description"]
    for rule in rules():
        path, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert REPOSITORY / path == RUNBOOK
        assert anchor == generate.anchor(rule["alert"])
        assert explained.get(anchor), rule["alert"]


def test_all_that_is_asked_for_is_a_metric_and_every_metric_is_asked_for() -> None:
    asked = " ".join(
        [*(t["expr"] for panel in panels() for t in panel["targets"]), *(rule["expr"] for rule in rules())]
    )
    asked += " ".join(a["expr"] for file in DASHBOARDS for a in json.loads(file.read_text())["annotations"]["list"])
    names = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bbalajoin_\w+", asked)}
    known = {metric.name for metric in CATALOGUE}
    assert names <= known
    unasked = {"balajoin_skew_threshold_ratio", "balajoin_last_batch_timestamp_seconds"}
    assert known - names == unasked


# --- Prometheus -------------------------------------------------------------------------------------------------------


def run(*command: str | Path) -> None:
    finished = subprocess.run([*map(str, command)], capture_output=True, text=True, cwd=REPOSITORY)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_promtool_accepts_config_and_rules_and_their_cases_pass() -> None:
    promtool = tool("promtool")
    run(promtool, "check", "config", PROMETHEUS / "prometheus.yml")
    run(promtool, "check", "rules", "--lint=all", "--lint-fatal", PROMETHEUS / "alerts.yml")
    run(promtool, "test", "rules", PROMETHEUS / "alerts_test.yml")


def test_every_alert_has_a_case_that_fires_and_one_that_does_not() -> None:
    cases = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text())["tests"]
    fired = {c["alertname"] for case in cases for c in case["alert_rule_test"] if c.get("exp_alerts")}
    quiet = {c["alertname"] for case in cases for c in case["alert_rule_test"] if not c.get("exp_alerts")}
    assert fired == quiet == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description", "runbook"}


# --- docker-compose.yml -----------------------------------------------------------------------------------------------


def compose() -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
    return content


def mounts() -> Iterator[tuple[str, str, str]]:
    """Each mount: the service, the mounted path, and its place in the container."""
    for name, service in compose()["services"].items():
        for volume in service.get("volumes", ()):
            source, target, *_ = volume.split(":")
            yield name, source, target


def mounted_at(service: str, path: str) -> Path:
    """The file of this repository that the service sees at this path."""
    (found,) = (
        REPOSITORY / source / path[len(target) :].lstrip("/")
        for at, source, target in mounts()
        if at == service and source.startswith(".") and (path == target or path.startswith(f"{target}/"))
    )
    assert found.exists(), found
    return found


def test_compose_and_its_schema_accept_the_file() -> None:
    run(tool("docker-compose"), "--profile", "demo", "config", "-q")
    check = Path(sys.executable).with_name("check-jsonschema")
    run(check, "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_what_is_mounted_exists_and_every_volume_has_a_use() -> None:
    named = {source for _, source, _ in mounts() if not source.startswith(".")}
    assert named == compose()["volumes"].keys()
    for _, source, _ in mounts():
        if source.startswith("."):
            assert (REPOSITORY / source).exists(), source


def test_images_are_pinned_and_services_are_watched() -> None:
    version = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"]
    for name, service in compose()["services"].items():
        image, _, tag = service["image"].partition(":")
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), service["image"]
        assert image != "balajoin" or (tag, service["build"]) == (version, ".")
        if name not in ("topics", "producer"):  # `topics` ends by itself, and nothing depends on `producer`
            assert service["healthcheck"]["test"][0] == "CMD"
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), port
    (base,) = re.findall(r"^FROM (\S+)$", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"python:\d+\.\d+\.\d+-slim-\w+", base)
    assert compose()["services"]["producer"]["profiles"] == ["demo"]


def test_addresses_agree_with_the_configs() -> None:
    services = compose()["services"]
    command = services["join"]["command"]
    config = load(mounted_at("join", command[command.index("-c") + 1]), {})
    address = config.metrics.address
    assert address is not None
    assert f"127.0.0.1:{address.port}:{address.port}" in services["join"]["ports"]
    assert f"http://localhost:{address.port}/metrics" in services["join"]["healthcheck"]["test"][-1]
    prometheus = yaml.safe_load(mounted_at("prometheus", "/etc/prometheus/prometheus.yml").read_text())
    assert prometheus["scrape_configs"][0]["static_configs"] == [{"targets": [f"join:{address.port}"]}]
    for rule_file in prometheus["rule_files"]:
        mounted_at("prometheus", f"/etc/prometheus/{rule_file}")

    servers = config.kafka.bootstrap_servers
    kafka = services["kafka"]["environment"]
    assert f"INTERNAL://{servers}" in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")
    assert servers in services["producer"]["command"]
    (host_listener,) = (x for x in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",") if x.startswith("HOST://localhost:"))
    host_port = host_listener.rpartition(":")[2]
    assert services["kafka"]["ports"] == [f"127.0.0.1:{host_port}:{host_port}"]

    host, port = config.run.master.removeprefix("spark://").split(":") if config.run.master else ("", "")
    master = services[host]["command"]
    assert (master[master.index("--host") + 1], master[master.index("--port") + 1]) == (host, port)
    for worker in ("spark-worker-1", "spark-worker-2"):
        assert services[worker]["command"][-1] == config.run.master
        assert any(config.run.checkpoint.startswith(target) for at, _, target in mounts() if at == worker)
        assert any(str(config.run.cache_dir).startswith(target) for at, _, target in mounts() if at == worker)
    assert config.spark["spark.driver.host"] == services["join"]["hostname"] == "join"


def test_grafana_finds_its_data_source_and_dashboards() -> None:
    services = compose()["services"]
    provisioning = mounted_at("grafana", "/etc/grafana/provisioning")
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    host, port = re.fullmatch(r"http://(\w+):(\d+)", source["url"]).groups()  # type: ignore[union-attr]
    assert services[host]["ports"] == [f"127.0.0.1:{port}:{port}"]
    scraped = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "balajoin.yml").read_text())["providers"]
    assert sorted(mounted_at("grafana", provider["options"]["path"]).glob("*.json")) == DASHBOARDS
    mounted_at("grafana", services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    public = "/usr/share/grafana"
    assert mounted_at("grafana", f"{public}{generate.RUNBOOK}") == RUNBOOK


def test_the_image_has_all_that_its_build_copies() -> None:
    allowed = [line[1:] for line in (REPOSITORY / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (.*) \S+$", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    sources = [source for line in copied for source in line.split()]
    assert sorted(sources) == sorted(allowed)
    assert all((REPOSITORY / source).exists() for source in sources)
    script = compose()["services"]["producer"]["command"][1]
    assert (REPOSITORY / script).exists()
    finished = subprocess.run([sys.executable, REPOSITORY / script, "--help"], capture_output=True, text=True)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "--servers" in finished.stdout
