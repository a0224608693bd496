"""Debian's Prometheus watches the service, and answers all queries of the dashboards and alerts."""

import json
import math
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

import pytest
import yaml

from balajoin.config.loading import load
from balajoin.embedded.ports import free_ports
from balajoin.kafka import topics
from debian_tools import tool
from kafka_data import Sent, everything, send
from samples import join_toml

pytestmark = pytest.mark.spark

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
PATIENCE_S = 180
START = 1_700_000_000_000


@contextmanager
def running(command: list[str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def get(self, path: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def values(self, expression: str) -> list[float]:
        try:
            found = self.get("/api/v1/query", query=expression)
        except urllib.error.HTTPError as error:
            if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # Prometheus is still starting
                raise
            pytest.fail(f"{expression}: {json.load(error)['error']}")
        if found["resultType"] == "scalar":
            return [float(found["result"][1])]
        return [float(series["value"][1]) for series in found["result"]]

    def wait_for(self, expression: str, service: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self.values(expression):
                    return
            except OSError:  # the server does not listen yet, or is not ready
                pass
            assert service.poll() is None, log.read_text()
            assert time.monotonic() < deadline, f"never seen: {expression}\n{log.read_text()}"
            time.sleep(0.2)


def rows(count: int, seed: int) -> list[Sent]:
    rng = random.Random(seed)
    return [
        Sent(b"hot" if rng.random() < 0.5 else b"%d" % rng.randrange(500), b"v", START + number, number % 2)
        for number in range(count)
    ]


def panels() -> list[tuple[str, str]]:
    """The title and expression of each panel query, with Grafana's variables filled in."""
    found = []
    for file in sorted((DASHBOARDS / "grafana" / "dashboards").glob("*.json")):
        dashboard = json.loads(file.read_text())
        asked = [(f"{file.name}, {a['name']}", a["expr"]) for a in dashboard["annotations"]["list"]]
        for panel in dashboard["panels"]:
            asked += [(f"{file.name}, {panel['title']}", target["expr"]) for target in panel.get("targets", ())]
        found += [(at, e.replace("$__rate_interval", "5m").replace("$join", ".*")) for at, e in asked]
    return found


def alerts() -> list[tuple[str, str]]:
    """The operands of each alert's comparison. The comparison itself gives nothing while all is well."""
    found = []
    for rule in yaml.safe_load((DASHBOARDS / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]:
        a_day_is_short = rule["expr"].replace("[1d:5m]", "[5m:1s]")
        operands = re.split(r"^(?:==|[<>]|and|unless)(?: on \([^)]*\))?", a_day_is_short, flags=re.MULTILINE)
        found += [(rule["alert"], operand.strip()) for operand in operands if operand.strip()]
    return found


def configuration(folder: Path, address: str) -> Path:
    """The configuration of dashboards/, with short intervals and this address."""
    content = yaml.safe_load((DASHBOARDS / "prometheus" / "prometheus.yml").read_text())
    content["global"] = {"scrape_interval": "500ms", "evaluation_interval": "1s"}
    content["rule_files"] = [str(DASHBOARDS / "prometheus" / file) for file in content["rule_files"]]
    (scraped,) = content["scrape_configs"]
    scraped["static_configs"] = [{"targets": [address]}]
    file = folder / "prometheus.yml"
    file.write_text(yaml.safe_dump(content))
    return file


def test_prometheus_has_an_answer_to_all_that_dashboards_and_alerts_ask(bootstrap: str, tmp_path: Path) -> None:
    prometheus = tool("prometheus")
    names = {name: f"watched-{name}-{uuid.uuid4().hex[:8]}" for name in ("probe", "build", "output")}
    metrics_port, prometheus_port = free_ports(2)
    file, log = tmp_path / "join.toml", tmp_path / "service.log"
    text = join_toml(
        kafka={"bootstrap_servers": bootstrap},
        **{name: {"topic": topic} for name, topic in names.items()},
        join={"before": "1 min", "lateness": "1 min", "skew.measure": "rows"},  # by work, B has no limit
        run={
            "checkpoint": f"{tmp_path}/checkpoint",
            "cache_dir": f"{tmp_path}/cache",
            "trigger": "100 ms",
            "master": "local[2,4]",
        },
        topics={"partitions": 2},
        metrics={"address": f"127.0.0.1:{metrics_port}"},
    )
    file.write_text(f'name = "watched"\n{text}')
    config = load(file, {})
    topics.create_missing(config.kafka, topics.shapes(config), config.topics.replication)
    command = [
        prometheus,
        f"--config.file={configuration(tmp_path, f'127.0.0.1:{metrics_port}')}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{prometheus_port}",
    ]
    with (
        log.open("wb") as output,
        running([sys.executable, "-m", "balajoin", "run", "-c", str(file)], output) as service,
        running(command, output),
    ):
        watching = Prometheus(prometheus_port)
        watching.wait_for("balajoin_input_rows_total == 0", service, log)
        send(bootstrap, names["build"], rows(200, seed=1))
        send(bootstrap, names["probe"], rows(2000, seed=2))
        watching.wait_for("balajoin_pull_wait_seconds_count > 0", service, log)
        watching.wait_for("sum(balajoin_input_rows_total) == 2200", service, log)
        asked = [*panels(), *alerts()]
        answers = [(at, expression, watching.values(expression)) for at, expression in asked]
        judged = watching.get("/api/v1/rules")["groups"][0]["rules"]
        joined = watching.values("sum(balajoin_output_rows_total)")
        service.send_signal(signal.SIGTERM)
        assert service.wait(PATIENCE_S) == 0
    assert len(asked) > 60
    assert [(at, expression) for at, expression, values in answers if not values] == []
    assert [(at, expression) for at, expression, values in answers if any(map(math.isnan, values))] == []
    assert {rule["health"] for rule in judged} == {"ok"}
    assert joined == [len(everything(bootstrap, names["output"]))]
    assert f"metrics at http://127.0.0.1:{metrics_port}/metrics" in log.read_text()
