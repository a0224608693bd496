"""What a join is told before it starts: frozen models, checked once, at the edge.

The same models serve the library (`JoinSettings(before="5 min", …)`) and the file. Whatever is wrong with them comes
out as one `ConfigError` that lists every problem. No message repeats a text value: it may have come from a secret.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from balajoin.config import durations
from balajoin.config.address import Address, AddressError
from balajoin.config.problems import problems_of, wrong
from balajoin.config.redaction import Redactor, is_secret, redact
from balajoin.core.sides import SIDES
from balajoin.core.spec import JoinType
from balajoin.errors import ConfigError, Problem
from balajoin.routing.rule import PolicyName

# Spark reads and commits by its checkpoint, and refuses these from a user.
_SET_BY_BALAJOIN = frozenset(
    {
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "group.id",
        "interceptor.classes",
        "key.deserializer",
        "key.serializer",
        "metadata.broker.list",
        "transactional.id",
        "value.deserializer",
        "value.serializer",
    }
)
_ISOLATION = "isolation.level"

IsolationLevel = Literal["read_committed", "read_uncommitted"]

# Where state lives depends on these, so the join sets them, whatever the session says.
_SPARK_SET_BY_BALAJOIN = {
    "spark.sql.adaptive.enabled": "remove it",
    "spark.sql.shuffle.partitions": "set join.nodes instead",
    "spark.sql.streaming.stateStore.providerClass": "remove it",
}

EXPRESSIONS = frozenset({"output.value", *(f"{side}.{part}" for side in SIDES for part in ("key", "time", "value"))})

_TOPIC_SETTINGS = (
    "probe.topic",
    "build.topic",
    "output.topic",
    "output.commit_topic",
    "join.dead_letter_topic",
    "join.late_topic",
    "join.control_topic",
    "join.replica_topic",
)


def _duration_ms(written: object) -> int:
    try:
        return durations.parse_ms(written)
    except durations.DurationError as error:
        raise wrong(error.message, error.suggestion) from None


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise wrong("must be a whole number")
    return value


def _topic(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,249}", name) or name in (".", ".."):
        raise wrong("not a Kafka topic name", "up to 249 letters, digits, '.', '_' and '-'")
    return name


def _servers(written: str) -> str:
    servers = [server.strip() for server in written.split(",")]
    if not all(re.fullmatch(r"[^\s,]+:[0-9]{1,5}", server) for server in servers):
        raise wrong("every server needs a host and a port", "host:9092, several with commas")
    return ",".join(servers)


def _address(written: object) -> Address:
    if isinstance(written, Address):
        return written
    try:
        return Address.parse(str(written))
    except AddressError as error:
        raise wrong(str(error), '"127.0.0.1:8787"') from None


def _flat_texts(table: object) -> object:
    """TOML reads `security.protocol = …` as nested tables, and writes numbers and booleans without quotes."""
    if not isinstance(table, Mapping):
        return table
    flat: dict[str, object] = {}
    for name, value in table.items():
        nested = _flat_texts(value)
        if isinstance(nested, dict):
            flat.update({f"{name}.{inner}": text for inner, text in nested.items()})
        elif isinstance(value, bool):
            flat[name] = str(value).lower()
        else:
            flat[name] = str(value) if isinstance(value, int | float) else value
    return flat


def _no_options_of_ours(options: Mapping[str, str]) -> Mapping[str, str]:
    for name in options:
        if name in _SET_BY_BALAJOIN:
            raise wrong("balajoin sets this option itself", "remove it", at=name)
        if name == _ISOLATION:
            hint = "set probe.isolation_level and build.isolation_level instead"
            raise wrong("each input has a setting of its own for this", hint, at=name)
    return options


def _no_conf_of_ours(conf: Mapping[str, str]) -> Mapping[str, str]:
    for name in conf:
        if name in _SPARK_SET_BY_BALAJOIN:
            raise wrong("balajoin sets this itself", _SPARK_SET_BY_BALAJOIN[name], at=name)
    return conf


Text = Annotated[str, StringConstraints(min_length=1)]
Topic = Annotated[str, AfterValidator(_topic)]
WholeNumber = Annotated[int, BeforeValidator(_no_boolean)]
Milliseconds = Annotated[int, BeforeValidator(_duration_ms)]
ListenAddress = Annotated[Address, BeforeValidator(_address), PlainSerializer(str)]
Texts = Annotated[Mapping[str, str], BeforeValidator(_flat_texts)]
ClientOptions = Annotated[Texts, AfterValidator(_no_options_of_ours), PlainSerializer(redact)]
SparkConf = Annotated[Texts, AfterValidator(_no_conf_of_ours), PlainSerializer(redact)]


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, /, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ConfigError(problems_of(error, type(self))) from None

    # Sections inside a Config must not be built through this __init__: it would end the check at the first bad one.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __repr_args__(self) -> Any:
        for name, value in super().__repr_args__():
            yield name, redact(value) if isinstance(value, Mapping) else value


class Kafka(_Settings):
    """How to reach the brokers.

    `options` have librdkafka's names and go to every client; `java` and `librdkafka` add to what one kind gets.
    """

    bootstrap_servers: Annotated[Text, AfterValidator(_servers)] = Field(examples=["localhost:9092"])
    options: ClientOptions = Field(default={}, examples=[{"security.protocol": "SASL_SSL"}])
    java: ClientOptions = {}
    librdkafka: ClientOptions = {}


class Stream(_Settings):
    """One input topic. `key`, `time` and `value` are Spark SQL expressions over the Kafka columns, or `json:$.path`."""

    topic: Topic = Field(examples=["orders"])
    key: Text = Field(default="key", examples=["json:$.customer.id"])
    time: Text = Field(default="timestamp", examples=["json:$.at"])
    value: Text = Field(default="value", examples=["value"])
    starting_offsets: Literal["earliest", "latest"] = Field(default="earliest", examples=["earliest"])
    isolation_level: IsolationLevel = Field(default="read_committed", examples=["read_committed"])
    allow_compacted: bool = Field(default=False, examples=[True])

    _substituted: frozenset[str] = PrivateAttr(default=frozenset())

    def is_substituted(self, part: str) -> bool:
        """Whether the file took some of this expression from the environment or from another file."""
        return part in self._substituted


class Skew(_Settings):
    """What counts as skewed, and how far its rows are spread: θ and ε of the paper, and what they rest on."""

    threshold: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.01, examples=[0.01])
    balance: Annotated[float, Field(gt=0, lt=1)] = Field(default=0.2, examples=[0.2])
    counters: Annotated[WholeNumber, Field(ge=16, le=1 << 20)] = Field(default=1024, examples=[1024])
    half_life_ms: Annotated[Milliseconds, Field(ge=1)] = Field(default=60_000, alias="half_life", examples=["1 min"])
    lease_ms: Annotated[Milliseconds, Field(ge=1)] = Field(default=60_000, alias="lease", examples=["1 min"])
    first_pass_rows: Annotated[WholeNumber, Field(ge=1)] = Field(default=100_000, examples=[100_000])
    keys: tuple[Text, ...] = Field(default=(), examples=[["user-1", "user-2"]])

    if TYPE_CHECKING:  # durations are given as texts, and kept as numbers

        def __init__(self, **settings: Any) -> None: ...


class JoinSettings(_Settings):
    """A pair joins when `probe.time - before <= build.time <= probe.time + after`."""

    type: JoinType = Field(default="inner", examples=["left"])
    before_ms: Milliseconds = Field(alias="before", examples=["5 min"])
    after_ms: Milliseconds = Field(alias="after", examples=["0 s"])
    lateness_ms: Annotated[Milliseconds, Field(ge=0)] = Field(default=0, alias="lateness", examples=["10 s"])
    idle_after_ms: Annotated[Milliseconds, Field(ge=1)] = Field(default=60_000, alias="idle_after", examples=["1 min"])
    max_ahead_ms: Annotated[Milliseconds, Field(ge=0)] = Field(default=3_600_000, alias="max_ahead", examples=["1 h"])
    nodes: Annotated[WholeNumber, Field(ge=1, le=1024)] = Field(default=4, examples=[4])
    policy: PolicyName = Field(default="bala-join", examples=["bala-join"])
    skew: Skew = Field(default=Skew(), validate_default=True)
    dead_letter_topic: Topic = Field(examples=["joined.dead-letter"])
    late_topic: Topic = Field(examples=["joined.late"])
    control_topic: Topic = Field(examples=["joined.control"])
    replica_topic: Topic = Field(examples=["joined.replicas"])
    max_rows_per_batch: Annotated[WholeNumber, Field(ge=1)] | None = Field(default=None, examples=[500_000])

    if TYPE_CHECKING:  # durations are given as texts, and kept as numbers

        def __init__(self, **settings: Any) -> None: ...

    @field_validator("skew")
    @classmethod
    def _bppr_is_told_its_keys(cls, skew: Skew, info: ValidationInfo) -> Skew:
        if info.data.get("policy") == "bppr" and not skew.keys:
            raise wrong("is missing: bppr is told which keys are skewed", 'keys = ["user-1"]', at="keys")
        return skew

    @field_validator("after_ms")
    @classmethod
    def _interval_is_not_empty(cls, after_ms: int, info: ValidationInfo) -> int:
        if after_ms + info.data.get("before_ms", -after_ms) < 0:
            raise wrong("the join interval ends before it starts", "before + after must not be negative")
        return after_ms


class Output(_Settings):
    """Where results go. `value` is an SQL expression over the result columns; none means JSON with both values.

    Exactly once needs a `commit_topic`, by which a repeated batch knows what is already written.
    """

    topic: Topic = Field(examples=["joined"])
    value: Text | None = Field(default=None, examples=["to_json(struct(key, probe_value, build_value))"])
    delivery: Literal["exactly-once", "at-least-once"] = Field(default="exactly-once", examples=["exactly-once"])
    commit_topic: Topic | None = Field(default=None, validate_default=True, examples=["joined.commits"])

    @field_validator("commit_topic", mode="before")
    @classmethod
    def _commit_topic_follows_the_output(cls, name: object, info: ValidationInfo) -> object:
        if info.data.get("delivery") != "exactly-once":
            return None
        topic = info.data.get("topic")
        return f"{topic}.commits" if name is None and topic is not None else name


class Run(_Settings):
    """How the service runs.

    `cache_dir` is a folder on each executor's own disk for a copy of its state; losing it costs time only. The files
    are in `balajoin-<uid>` there, which belongs to the executor's user alone. Without it, the executor's temporary
    folder is used.
    """

    checkpoint: Text = Field(examples=["/var/lib/balajoin/checkpoint"])
    trigger_ms: Annotated[Milliseconds, Field(ge=0)] = Field(default=1_000, alias="trigger", examples=["1 s"])
    master: Text | None = Field(default=None, examples=["local[*,4]"])
    cache_dir: Text | None = Field(default=None, examples=["/var/cache/balajoin"])
    record: Text | None = Field(default=None, examples=["run.jsonl"])

    if TYPE_CHECKING:  # durations are given as texts, and kept as numbers

        def __init__(self, **settings: Any) -> None: ...


class Page(_Settings):
    """Where the live page is served; nowhere if left out. Port 0 takes any that is free."""

    address: ListenAddress | None = Field(default=None, examples=["127.0.0.1:8787"])

    if TYPE_CHECKING:  # given as a text, and kept as host and port

        def __init__(self, **settings: Any) -> None: ...


class Metrics(_Settings):
    """Where Prometheus finds the join's metrics; nowhere if left out. Port 0 takes any that is free."""

    address: ListenAddress | None = Field(default=None, examples=["127.0.0.1:9464"])

    if TYPE_CHECKING:  # given as a text, and kept as host and port

        def __init__(self, **settings: Any) -> None: ...


class TopicLayout(_Settings):
    """How `balajoin topics` creates what is missing."""

    partitions: Annotated[WholeNumber, Field(ge=1, le=10_000)] = Field(default=4, examples=[4])
    replication: Annotated[WholeNumber, Field(ge=1, le=100)] = Field(default=1, examples=[3])


class Config(_Settings):
    """One service, as its file describes it."""

    name: Text = Field(default="balajoin", examples=["orders-with-clicks"])
    kafka: Kafka
    probe: Stream
    build: Stream
    join: JoinSettings
    output: Output
    run: Run
    metrics: Metrics = Metrics()
    page: Page = Page()
    topics: TopicLayout = TopicLayout()
    spark: SparkConf = {}

    _substituted_secrets: tuple[str, ...] = PrivateAttr(default=())

    @field_validator("output")
    @classmethod
    def _one_role_a_topic(cls, output: Output, info: ValidationInfo) -> Output:
        clashes = topic_clashes({**info.data, "output": output})
        if clashes:
            raise PydanticCustomError("problems", "topic clash", {"problems": clashes})
        return output

    @property
    def topics_by_setting(self) -> dict[str, str]:
        """Every topic of the service under the dotted setting that names it, inputs first."""
        return _topics_by_setting(dict(self))

    @property
    def redactor(self) -> Redactor:
        """Cleans any text of this service's secrets; the service and the CLI pass through it all they did not write."""
        tables = (self.kafka.options, self.kafka.java, self.kafka.librdkafka, self.spark)
        named = [value for table in tables for name, value in table.items() if is_secret(name)]
        return Redactor([*named, *self._substituted_secrets])

    def __repr__(self) -> str:
        return self.redactor(super().__repr__())

    def __str__(self) -> str:
        return self.redactor(super().__str__())


_SELF_JOIN = ("probe.topic", "build.topic")


def topic_clashes(sections: Mapping[str, object]) -> list[Problem]:
    """Sections may be models, or tables as a file has them: then a clash shows up next to whatever else is wrong."""
    taken: dict[str, str] = {}
    clashes = []
    for setting, topic in _topics_by_setting(sections).items():
        first = taken.setdefault(topic, setting)
        if first != setting and (first, setting) != _SELF_JOIN:
            clashes.append(Problem(setting, f"the same topic as {first}", "give each role a topic of its own"))
    return clashes


def _topics_by_setting(sections: Mapping[str, object]) -> dict[str, str]:
    topics = {}
    for setting in _TOPIC_SETTINGS:
        section, _, name = setting.partition(".")
        settings = sections.get(section)
        topic = settings.get(name) if isinstance(settings, Mapping) else getattr(settings, name, None)
        if isinstance(topic, str):
            topics[setting] = topic
    return topics
