"""TLS, logins and ACLs on a real broker, for every client of the project. Secrets show nowhere."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest

from balajoin import cli
from balajoin.config.loading import load
from balajoin.config.models import Config, Kafka
from balajoin.embedded.ports import free_ports
from balajoin.errors import KafkaError
from balajoin.kafka import rights, topics
from balajoin.kafka.client_options import spark_reader_options
from balajoin.service.run import explained, require_topics, start
from kafka_data import Sent, everything, send
from processes import command_line, is_loopback, listening, tree
from secured import Acl, SecuredBroker, broker_that_asks_for_certificates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
PRINCIPALS = ("`balajoin topics`", "the service", "`balajoin control tail`")
PASSWORD = "s3cretPassw0rdXyz"  # the same with any kind of quoting
SALT = "grainsOfSalt"  # comes from a file whose name does not tell that it is a secret
_PATIENCE_S = 120

CONFIG = """\
name = "secured"
[kafka]
bootstrap_servers = "{servers}"
[kafka.options]
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "{user}"
sasl.password = "${{KAFKA_PASSWORD}}"
ssl.ca.location = "{folder}/ca.pem"
ssl.certificate.location = "{folder}/client.pem"
ssl.key.location = "{folder}/client.key"
[probe]
topic = "{name}.clicks"
time = "json:$.at"
[build]
topic = "{name}.shows"
time = "json:$.at"
[join]
before = "1 min"
after = "1 min"
lateness = "1 min"
nodes = 2
[output]
topic = "{name}.joined"
[run]
checkpoint = "{checkpoint}"
cache_dir = "{checkpoint}-cache"
trigger = "200 ms"
master = "local[2,2]"
[topics]
partitions = 2
{more}
"""


def documented(config: Config) -> dict[str, list[Acl]]:
    """The ACLs in the table of docs/operations.md by principal, with the topics of this configuration."""
    section = OPERATIONS.read_text().partition("## Access")[2].partition("\n## ")[0]
    found: dict[str, list[Acl]] = defaultdict(list)
    principal = ""
    for first, named, operations in re.findall(r"^\|(.*)\|(.*)\|(.*)\|$", section, re.M)[2:]:
        if first.strip() and "…" not in first:  # a row with "…" continues the principal before
            principal = first.strip()
        names = list(config.topics_by_setting) if named.strip() == "all of them" else re.findall(r"`(.+?)`", named)
        for name, operation in product(names, operations.split(",")):
            if "transactional ids with prefix" in named:
                found[principal].append(Acl(operation.strip(), "transactional_id", name, prefixed=True))
            else:
                found[principal].append(Acl(operation.strip(), "topic", config.topics_by_setting[name]))
    return found


@dataclass
class SecuredJoin:
    """A join with its own topics on the secured broker, and its configuration files."""

    secured: SecuredBroker
    folder: Path
    name: str
    more: str = ""

    @property
    def servers(self) -> str:
        """The listener that requires no rights."""
        return self.secured.broker.internal_servers

    def file(self, user: str) -> Path:
        path = self.folder / f"{user}.toml"
        values = {"servers": self.secured.broker.bootstrap_servers, "folder": self.secured.folder, "more": self.more}
        path.write_text(CONFIG.format(user=user, name=self.name, checkpoint=self.folder / "checkpoint", **values))
        return path

    def config(self, user: str) -> Config:
        return load(self.file(user), {"KAFKA_PASSWORD": PASSWORD})

    def new_user(self, acls: Iterable[Acl]) -> str:
        user = fresh("user")
        self.secured.add_user(user, PASSWORD)
        self.secured.allow(user, acls)
        return user

    def create_topics(self) -> None:
        config = self.config("me")
        topics.create_missing(Kafka(bootstrap_servers=self.servers), topics.shapes(config), 1)

    def send(self, topic: str, values: Iterable[tuple[bytes, bytes]]) -> None:
        send(self.servers, f"{self.name}.{topic}", [Sent(k, v, 0, n % 2) for n, (k, v) in enumerate(values)])

    def count(self, topic: str) -> int:
        return len(everything(self.servers, f"{self.name}.{topic}"))


def fresh(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def place(secured: SecuredBroker, tmp_path: Path) -> SecuredJoin:
    return SecuredJoin(secured, tmp_path, fresh("join"))


def at(seconds: float) -> bytes:
    return json.dumps({"at": int(1_700_000_000_000 + 1000 * seconds)}).encode()


def wait_for(what: str, done: Callable[[], object], alive: Callable[[], object] = lambda: True) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not done():
        assert alive(), f"the process ended before {what}"
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.3)


def test_the_documented_rights_are_those_that_are_asked_for(place: SecuredJoin) -> None:
    config = place.config("me")
    for principal, needed in (("the service", rights.OF_SERVICE), ("`balajoin control tail`", rights.OF_TAIL)):
        acls = {Acl(each, "topic", config.topics_by_setting[name]) for name in needed for each in needed[name]}
        assert {acl for acl in documented(config)[principal] if acl.kind == "topic"} == acls


@pytest.mark.spark
def test_every_command_works_with_exactly_the_documented_rights_and_shows_no_secret(place: SecuredJoin) -> None:
    (port,) = free_ports(1)
    salt = place.folder / "salt"
    salt.write_text(SALT)
    place.more = f"""
[spark]
spark.ui.enabled = true
spark.ui.port = {port}
spark.odd = "${{file:{salt}}}"
"""
    acls = documented(place.config("me"))
    maker, user, looker = (place.new_user(acls[who]) for who in PRINCIPALS)
    environ = {**os.environ, "KAFKA_PASSWORD": PASSWORD}

    def command(*arguments: str, user: str) -> list[str]:
        return [sys.executable, "-m", "balajoin", *arguments, "-c", str(place.file(user))]

    made = subprocess.run(command("topics", user=maker), env=environ, capture_output=True, text=True, check=True)
    assert made.stdout.count("created") == len(place.config("me").topics_by_setting)

    hot = [(b"hot" if n % 2 else b"%d" % n, at(n / 100)) for n in range(2000)]
    place.send("clicks", [*hot, (b"no time", b"-")])
    place.send("shows", [(b"hot", at(0)), (b"hot", at(1)), (b"4", at(0))])
    log = (place.folder / "log").open("wb")
    running = subprocess.Popen(command("run", "--verbose", user=user), env=environ, stdout=log, stderr=log)
    try:
        for topic in ("joined", "joined.dead-letter", "joined.control", "joined.replicas"):
            wait_for(f"record in {topic}", lambda topic=topic: place.count(topic), lambda: running.poll() is None)
        place.send("clicks", [(b"4", at(1000)), (b"4", at(1000))])
        wait_for("results", lambda: place.count("joined") >= 2001, lambda: running.poll() is None)
        place.send("clicks", [(b"4", at(-1000))])
        wait_for("late row", lambda: place.count("joined.late"), lambda: running.poll() is None)
        processes = tree(running.pid)
        assert len(processes) > 3
        seen = {"command lines": "\n".join(map(command_line, processes)), **pages(port)}
        assert "balajoin.spark.daemon" in seen["command lines"]
        assert all(map(is_loopback, listening(processes))), listening(processes)
        running.send_signal(signal.SIGTERM)
        assert running.wait(_PATIENCE_S) == 0
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
        log.close()
    told = subprocess.run(
        command("control", "tail", user=looker), env=environ, capture_output=True, text=True, check=True
    )
    assert "signal" in told.stdout
    seen["log"] = (place.folder / "log").read_text()
    assert "batch=0" in seen["log"]
    seen["tail"] = told.stdout + told.stderr
    key = (place.secured.folder / "client.key").read_text().splitlines()[1]
    for where, text in seen.items():
        for secret in (PASSWORD, SALT, key):
            assert secret not in text, f"{where} shows a secret"


def pages(port: int) -> dict[str, str]:
    """Spark's web pages with settings and plans, and the answers of its REST API."""

    def read(path: str) -> str:
        with urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.read().decode()

    (application,) = json.loads(read("/api/v1/applications"))
    rest = f"/api/v1/applications/{application['id']}"
    found = {
        path: read(path)
        for path in (
            f"{rest}/environment",
            f"{rest}/sql?details=true&planDescription=true&length=100",
            f"{rest}/stages?details=true",
            "/environment/",
            "/StreamingQuery/",
            "/SQL/execution/?id=1",
        )
    }
    environment = dict(json.loads(found[f"{rest}/environment"])["sparkProperties"])
    assert environment["spark.odd"] == "*********(redacted)"
    assert "MicroBatch" in found[f"{rest}/sql?details=true&planDescription=true&length=100"]
    return found


@pytest.fixture(scope="module")
def shared(secured: SecuredBroker, tmp_path_factory: pytest.TempPathFactory) -> SecuredJoin:
    """A join whose topics exist, for tests that change nothing."""
    place = SecuredJoin(secured, tmp_path_factory.mktemp("shared"), fresh("join"))
    place.create_topics()
    return place


@pytest.mark.parametrize(
    ("setting", "operation"),
    [(name, each) for name, operations in rights.OF_SERVICE.items() for each in operations if each != "Describe"],
)
def test_a_missing_right_is_named(shared: SecuredJoin, setting: str, operation: str) -> None:
    everything_needed = documented(shared.config("me"))["the service"]
    topic = shared.config("me").topics_by_setting[setting]
    user = shared.new_user(acl for acl in everything_needed if (acl.operation, acl.name) != (operation, topic))
    config = shared.config(user)
    with pytest.raises(KafkaError) as refused:
        require_topics(config, "join.toml")
    assert str(refused.value) == (
        f"Kafka at {config.kafka.bootstrap_servers} denies user {user} {operation} on topic {topic} ({setting}): "
        "ask for these ACLs"
    )
    (problem,) = rights.problems(config, topics.look_up(config.kafka, config.topics_by_setting.values()))
    assert str(problem) == f"{setting}: user {user} may not {operation} topic {topic} (ask for that ACL)"


def test_a_topic_that_may_not_be_seen_is_not_taken_for_a_missing_one(shared: SecuredJoin) -> None:
    everything_needed = documented(shared.config("me"))["the service"]
    hidden = shared.config("me").output.topic
    user = shared.new_user(acl for acl in everything_needed if acl.name != hidden)
    config = shared.config(user)
    with pytest.raises(KafkaError, match=rf"Describe on topic {hidden} \(output.topic\), Write on topic {hidden} "):
        require_topics(config, "join.toml")
    for ask in (topics.existing, topics.partition_counts):
        with pytest.raises(KafkaError, match=f"user {user} may not Describe topic {hidden}: ask for that ACL"):
            ask(config.kafka, [hidden])


@pytest.mark.parametrize("lacking", ["Describe", "Create"])
def test_who_may_not_create_topics_is_told_so(place: SecuredJoin, lacking: str) -> None:
    acls = documented(place.config("me"))["`balajoin topics`"]
    config = place.config(place.new_user(acl for acl in acls if acl.operation != lacking))
    with pytest.raises(KafkaError, match=rf"{lacking} (on it|topic {place.name}\.clicks)"):
        topics.create_missing(config.kafka, topics.shapes(config), 1)


def test_the_tail_says_which_right_it_lacks(shared: SecuredJoin, capsys: pytest.CaptureFixture[str]) -> None:
    acls = documented(shared.config("me"))["`balajoin control tail`"]
    config = shared.config(shared.new_user(acl for acl in acls if acl.operation == "Describe"))
    with pytest.raises(KafkaError, match=rf"Read on topic {config.join.control_topic} \(join.control_topic\), Read on"):
        cli._control_tail(config, 1, follow=False)


@pytest.mark.parametrize(
    ("setting", "operation"),
    [
        ("build.topic", "Read"),
        ("output.topic", "Write"),
        ("join.dead_letter_topic", "Write"),
        ("join.control_topic", "Read"),
    ],
)
def test_a_right_that_is_taken_away_while_the_service_runs_is_named(
    place: SecuredJoin, spark: "SparkSession", setting: str, operation: str
) -> None:
    from pyspark.errors import StreamingQueryException

    place.create_topics()
    acls = documented(place.config("me"))["the service"]
    user = place.new_user(acls)
    config = place.config(user)
    topic = config.topics_by_setting[setting]
    query = start(spark, config)
    try:
        for side in ("clicks", "shows"):
            place.send(side, [(b"k", at(0))])
        wait_for("result", lambda: place.count("joined"), lambda: query.isActive)
        place.secured.take_back(user, [Acl(operation, "topic", topic)])
        place.send("clicks", [(b"k", at(0)), (b"k", b"no time")])
        place.send("shows", [(b"k", at(0))])
        send(place.servers, config.join.control_topic, [Sent(None, b"{}", 0)])
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(_PATIENCE_S)
        said = str(explained(failed.value, config, "join.toml"))
        assert f"denies user {user} {operation} on topic {topic} ({setting}): ask" in said
        events = [progress.json for progress in query.recentProgress]
        assert events
        assert not any(PASSWORD in text for text in (said, str(failed.value), *events))
    finally:
        query.stop()


def test_a_user_who_may_not_use_transactional_ids_is_told_so(place: SecuredJoin, spark: "SparkSession") -> None:
    from pyspark.errors import StreamingQueryException

    place.create_topics()
    acls = documented(place.config("me"))["the service"]
    user = place.new_user(acl for acl in acls if acl.kind != "transactional_id")
    config = place.config(user)
    for side in ("clicks", "shows"):
        place.send(side, [(b"k", at(0))])
    query = start(spark, config)
    try:
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(_PATIENCE_S)
    finally:
        query.stop()
    said = str(explained(failed.value, config, "join.toml"))
    assert "allow Write and Describe on transactional ids with prefix balajoin-" in said


def test_a_certificate_that_the_broker_asks_for_is_shown_by_both_kinds_of_clients(
    secured: SecuredBroker, spark: "SparkSession", tmp_path: Path
) -> None:
    folder = secured.folder
    ssl = {"security.protocol": "SSL", "ssl.ca.location": str(folder / "ca.pem")}
    files = {"ssl.certificate.location": folder / "client.pem", "ssl.key.location": folder / "client.key"}
    certificate = {name: str(path) for name, path in files.items()}
    with broker_that_asks_for_certificates(tmp_path / "broker", folder) as broker:
        known = Kafka(bootstrap_servers=broker.bootstrap_servers, options=ssl | certificate)
        topics.create_missing(known, {"t": topics.Shape(2)}, 1)
        options = spark_reader_options(known)
        assert spark.read.format("kafka").options(**options).option("subscribe", "t").load().count() == 0
        with pytest.raises(KafkaError, match=r"cannot reach Kafka .*check .*security\.protocol"):
            topics.existing(Kafka(bootstrap_servers=broker.bootstrap_servers, options=ssl), ["t"])


def test_the_broker_listens_on_loopback_only(secured: SecuredBroker) -> None:
    assert secured.broker.pid is not None
    addresses = listening([secured.broker.pid])
    assert addresses
    assert all(map(is_loopback, addresses))
