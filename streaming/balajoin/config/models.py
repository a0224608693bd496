"""The settings of a join: frozen models, which are checked once, when they are created.

The library (`JoinSettings(before="5 min", …)`) and the file use the same models. One `ConfigError` lists every problem.
No message repeats a text value: it may have come from a secret.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from balajoin.config.fields import (
    TOPIC_HINT,
    TOPIC_RULE,
    ClientOptions,
    ListenAddress,
    Milliseconds,
    SparkConf,
    Text,
    Topic,
    WholeNumber,
    is_topic,
    servers,
)
from balajoin.config.problems import problems_of, wrong
from balajoin.config.redaction import Redactor, is_secret, redact
from balajoin.core.sides import SIDES
from balajoin.core.spec import JoinType
from balajoin.errors import ConfigError, Problem
from balajoin.routing.rule import Measure, PolicyName

if TYPE_CHECKING:
    from balajoin.config.address import Address

IsolationLevel = Literal["read_committed", "read_uncommitted"]

LEFT_OUT = "if_left_out"
"""The text in docs/settings.md for a default that depends on other settings."""

SIDE_TOPICS = {
    "dead_letter_topic": "dead-letter",
    "late_topic": "late",
    "control_topic": "control",
    "replica_topic": "replicas",
}
"""Topics besides the output topic, and the endings of their default names."""

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


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def __init__(self, /, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as error:
            raise ConfigError(problems_of(error, type(self))) from None

    # Pydantic must not build the sections of a Config through this __init__: the check would end at the first bad one.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def __repr_args__(self) -> Any:
        for name, value in super().__repr_args__():
            yield name, redact(value) if isinstance(value, Mapping) else value


class Kafka(_Settings):
    """How to reach the brokers."""

    bootstrap_servers: Annotated[Text, AfterValidator(servers)] = Field(
        description="Where the brokers are: `host:port`, several with commas.", examples=["localhost:9092"]
    )
    options: ClientOptions = Field(
        default={},
        description="Any client option, by librdkafka's name, for every client: a table `[kafka.options]`.",
        examples=[{"security.protocol": "SASL_SSL"}],
    )
    java: ClientOptions = Field(
        default={}, description="Options for Spark's clients only, by Java's names: a table `[kafka.java]`."
    )
    librdkafka: ClientOptions = Field(
        default={}, description="Options for balajoin's own clients only: a table `[kafka.librdkafka]`."
    )


class Stream(_Settings):
    """One input topic. `key`, `time` and `value` are Spark SQL expressions over the Kafka columns, or `json:$.path`.

    The Kafka columns are `key`, `value`, `topic`, `partition`, `offset`, `timestamp` and `headers`.
    """

    topic: Topic = Field(description="The input topic. Probe and build may be the same topic.", examples=["orders"])
    key: Text = Field(
        default="key", description="Expression for the join key of a record.", examples=["json:$.customer.id"]
    )
    time: Text = Field(
        default="timestamp", description="Expression for the event time of a record.", examples=["json:$.at"]
    )
    value: Text = Field(
        default="value", description="Expression for the part of a record that results contain.", examples=["value"]
    )
    starting_offsets: Literal["earliest", "latest"] = Field(
        default="earliest",
        description="Where the join starts to read at its first start: `earliest` or `latest`.",
        examples=["earliest"],
    )
    isolation_level: IsolationLevel = Field(
        default="read_committed",
        description="`read_uncommitted` also joins records of open and aborted transactions.",
        examples=["read_committed"],
    )
    allow_compacted: bool = Field(
        default=False,
        description="Whether the topic may be compacted, at [your own risk](operations.md#inputs).",
        examples=[True],
    )

    _substituted: frozenset[str] = PrivateAttr(default=frozenset())

    def is_substituted(self, part: str) -> bool:
        """Whether a part of this expression came from the environment or from another file."""
        return part in self._substituted


class Skew(_Settings):
    """Which keys are skewed, and how far their rows are spread: θ and ε of the paper, and the sketch behind them."""

    threshold: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.01,
        description="θ: a key is skewed while it has more than this share of a source's recent rows.",
        examples=[0.01],
    )
    balance: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.2,
        description="ε: how far below the fullest node, as a share of it, the emptiest node may be.",
        examples=[0.2],
    )
    measure: Measure = Field(
        default="work",
        description="What `bala-join` balances: `work`, which is all rows and their pairs, or `rows`, which is the "
        "paper's exact behaviour: skewed probe rows only.",
        examples=["work"],
    )
    pair_cost: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=1.0,
        description='With `measure = "work"`: the work of making and writing a pair, in rows taken in.',
        examples=[1.0],
    )
    weights: tuple[Annotated[float, Field(ge=0.01, le=100)], ...] = Field(
        default=(),
        description='With `measure = "work"`: one number for each node, node 0 first. A node with half the weight of '
        "another gets half the work, as far as [skewed rows](policies.md#node-weights) allow.",
        examples=[[1.0, 1.0, 1.0, 0.5]],
    )
    counters: Annotated[WholeNumber, Field(ge=16, le=1 << 20)] = Field(
        default=1024, description="Number of counters in the sketch of each source.", examples=[1024]
    )
    half_life_ms: Annotated[Milliseconds, Field(ge=1)] = Field(
        default=60_000,
        alias="half_life",
        description="Counts in the sketch and loads of nodes halve in this time.",
        examples=["1 min"],
    )
    lease_ms: Annotated[Milliseconds, Field(ge=1)] = Field(
        default=60_000,
        alias="lease",
        description="How far ahead, in event time, a node asks for build rows.",
        examples=["1 min"],
    )
    first_pass_rows: Annotated[WholeNumber, Field(ge=1)] = Field(
        default=100_000,
        description="Number of first rows of a source in which `bppr-det` detects skewed keys.",
        examples=[100_000],
    )
    keys: tuple[Text, ...] = Field(
        default=(),
        description="Skewed keys, as text. `bppr` needs them; `prpd`, `pnr` and `sfr` use them instead of detecting.",
        examples=[["user-1", "user-2"]],
    )

    if TYPE_CHECKING:  # durations are given as text and stored as numbers

        def __init__(
            self,
            *,
            threshold: float = 0.01,
            balance: float = 0.2,
            measure: Measure = "work",
            pair_cost: float = 1.0,
            weights: Sequence[float] = (),
            counters: int = 1024,
            half_life: str = "1 min",
            lease: str = "1 min",
            first_pass_rows: int = 100_000,
            keys: Sequence[str] = (),
        ) -> None: ...


class JoinSettings(_Settings):
    """A pair joins when `probe.time - before <= build.time <= probe.time + after`."""

    type: JoinType = Field(
        default="inner",
        description="`inner`, `left`, `right`, `full`, `left_semi` or `left_anti`. A checkpoint pins it.",
        examples=["left"],
    )
    before_ms: Milliseconds = Field(
        alias="before", description="How much older than its probe row a build row may be.", examples=["5 min"]
    )
    after_ms: Milliseconds = Field(
        alias="after", description="How much newer than its probe row a build row may be.", examples=["0 s"]
    )
    lateness_ms: Annotated[Milliseconds, Field(ge=0)] = Field(
        default=0,
        alias="lateness",
        description="How much older than the newest row of its partition a row may be.",
        examples=["10 s"],
    )
    idle_after_ms: Annotated[Milliseconds, Field(ge=1)] = Field(
        default=60_000,
        alias="idle_after",
        description="The watermark stops waiting for a partition without rows after this time.",
        examples=["1 min"],
    )
    max_ahead_ms: Annotated[Milliseconds, Field(ge=0)] = Field(
        default=3_600_000,
        alias="max_ahead",
        description="A row whose time is ahead of the clock by more than this is a dead letter.",
        examples=["1 h"],
    )
    nodes: Annotated[WholeNumber, Field(ge=1, le=1024)] = Field(
        default=4,
        description="Number of state partitions. A checkpoint pins it; `balajoin rescale` changes it.",
        examples=[4],
    )
    policy: PolicyName = Field(
        default="bala-join",
        description="How the join chooses a node for a probe row: `bala-join`, `bppr`, `bppr-det`, `flow-join`, "
        "`hash`, `pnr`, `prpd` or `sfr`. May change at any start.",
        examples=["bala-join"],
    )
    skew: Skew = Field(default=Skew(), validate_default=True)
    dead_letter_topic: Topic = Field(
        default="",
        description="Topic for records without a usable key or time.",
        examples=["joined.dead-letter"],
        json_schema_extra={LEFT_OUT: "`<output.topic>.dead-letter`"},
    )
    late_topic: Topic = Field(
        default="",
        description="Topic for rows that came too late.",
        examples=["joined.late"],
        json_schema_extra={LEFT_OUT: "`<output.topic>.late`"},
    )
    control_topic: Topic = Field(
        default="",
        description="Topic for signals between sources and nodes. No other join may use it.",
        examples=["joined.control"],
        json_schema_extra={LEFT_OUT: "`<output.topic>.control`"},
    )
    replica_topic: Topic = Field(
        default="",
        description="Topic for the build rows that nodes pull. No other join may use it.",
        examples=["joined.replicas"],
        json_schema_extra={LEFT_OUT: "`<output.topic>.replicas`"},
    )
    max_rows_per_batch: Annotated[WholeNumber, Field(ge=1)] | None = Field(
        default=None, description="Most rows of each input in one batch.", examples=[500_000]
    )

    if TYPE_CHECKING:  # durations are given as text and stored as numbers

        def __init__(
            self,
            *,
            before: str,
            after: str,
            type: JoinType = "inner",
            lateness: str = "0 s",
            idle_after: str = "1 min",
            max_ahead: str = "1 h",
            nodes: int = 4,
            policy: PolicyName = "bala-join",
            skew: Skew = ...,
            dead_letter_topic: str = ...,
            late_topic: str = ...,
            control_topic: str = ...,
            replica_topic: str = ...,
            max_rows_per_batch: int | None = None,
        ) -> None: ...

    def with_side_topics(self, prefix: str) -> Self:
        """A copy in which every side topic that was left out is named after `prefix`: `<prefix>.late`, …"""
        missing = {name: f"{prefix}.{ending}" for name, ending in SIDE_TOPICS.items() if not getattr(self, name)}
        too_long = [Problem(name, TOPIC_RULE, TOPIC_HINT) for name, topic in missing.items() if not is_topic(topic)]
        if too_long:
            raise ConfigError(too_long)
        return self.model_copy(update=missing)

    def of_inputs(self, probe: Stream, build: Stream) -> Self:
        """Names the side topics `<probe>-<build>.late`, …, because a library's join has no output topic."""
        return self.with_side_topics(f"{probe.topic}-{build.topic}")

    @property
    def balance_limit(self) -> float | None:
        """How large B may become. None if the policy balances work, which has another bound."""
        return None if self.policy == "bala-join" and self.skew.measure == "work" else self.skew.balance

    @field_validator("skew")
    @classmethod
    def _bppr_is_told_its_keys(cls, skew: Skew, info: ValidationInfo) -> Skew:
        if info.data.get("policy") == "bppr" and not skew.keys:
            raise wrong("is missing: bppr does not detect skewed keys, so name them", 'keys = ["user-1"]', at="keys")
        return skew

    @field_validator("skew")
    @classmethod
    def _each_node_has_a_weight(cls, skew: Skew, info: ValidationInfo) -> Skew:
        weights, nodes = len(skew.weights), info.data.get("nodes")
        if weights and nodes is not None and weights != nodes:
            hint = f"give {nodes} numbers, or leave weights out"
            raise wrong(f"must have one number for each node: {weights} for join.nodes = {nodes}", hint, at="weights")
        return skew

    @field_validator("after_ms")
    @classmethod
    def _interval_is_not_empty(cls, after_ms: int, info: ValidationInfo) -> int:
        if after_ms + info.data.get("before_ms", -after_ms) < 0:
            raise wrong("the join interval ends before it starts", "before + after must not be negative")
        return after_ms


class Output(_Settings):
    """Where results go."""

    topic: Topic = Field(description="Topic for the results.", examples=["joined"])
    value: Text | None = Field(
        default=None,
        description="Spark SQL expression over the result's columns.",
        examples=["to_json(struct(key, probe_value, build_value))"],
        json_schema_extra={LEFT_OUT: "a JSON object with both values"},
    )
    delivery: Literal["exactly-once", "at-least-once"] = Field(
        default="exactly-once",
        description="`exactly-once`, for consumers with `isolation.level=read_committed`, or `at-least-once`.",
        examples=["exactly-once"],
    )
    id: Literal["header", "none"] | None = Field(
        default=None,
        validate_default=True,
        description=(
            "Whether records carry the result's id in the header `balajoin-id`. The default value holds the id anyway."
        ),
        examples=["none"],
        json_schema_extra={LEFT_OUT: "`none`; `header` with `at-least-once`, where results may come twice"},
    )
    commit_topic: Topic | None = Field(
        default=None,
        validate_default=True,
        description="Topic that tells a repeated batch which results are already written. No other join may use it.",
        examples=["joined.commits"],
        json_schema_extra={LEFT_OUT: "`<output.topic>.commits`; none with `at-least-once`"},
    )

    @field_validator("id", mode="after")
    @classmethod
    def _id_follows_the_delivery(cls, id_: str | None, info: ValidationInfo) -> str:
        """Consumers need the id to find results that came twice; where results come once, the header is only a cost."""
        if id_ is not None:
            return id_
        return "header" if info.data.get("delivery") == "at-least-once" else "none"

    @field_validator("commit_topic", mode="before")
    @classmethod
    def _commit_topic_follows_the_output(cls, name: object, info: ValidationInfo) -> object:
        if info.data.get("delivery") != "exactly-once":
            return None
        topic = info.data.get("topic")
        return f"{topic}.commits" if name is None and topic is not None else name


class Run(_Settings):
    """How the service runs."""

    checkpoint: Text = Field(
        description="A folder on any file system that Spark reaches. A path without a scheme is on "
        "Hadoop's default file system (`fs.defaultFS`).",
        examples=["/var/lib/balajoin/checkpoint"],
    )
    trigger_ms: Annotated[Milliseconds, Field(ge=0)] = Field(
        default=1_000,
        alias="trigger",
        description="Shortest time between the starts of two batches.",
        examples=["1 s"],
    )
    master: Text | None = Field(
        default=None,
        description="Spark's master.",
        examples=["local[*,4]"],
        json_schema_extra={LEFT_OUT: "`local[*,4]`"},
    )
    cache_dir: Text | None = Field(
        default=None,
        description="Folder on each executor's own disk for a searchable copy of its state, in a subfolder "
        "`balajoin-<uid>` that belongs to the executor's user alone. Losing it costs time only.",
        examples=["/var/cache/balajoin"],
        json_schema_extra={LEFT_OUT: "the executor's temporary folder"},
    )
    record: Text | None = Field(
        default=None,
        description="File that records each batch, for [`balajoin plot`](watching.md).",
        examples=["run.jsonl"],
    )

    if TYPE_CHECKING:  # durations are given as text and stored as numbers

        def __init__(
            self,
            *,
            checkpoint: str,
            trigger: str = "1 s",
            master: str | None = None,
            cache_dir: str | None = None,
            record: str | None = None,
        ) -> None: ...


class Metrics(_Settings):
    """Where Prometheus reads the join's metrics. Port 0 takes any free port."""

    address: ListenAddress | None = Field(
        default=None,
        description="Where Prometheus reads [metrics](metrics.md).",
        examples=["127.0.0.1:9464"],
        json_schema_extra={LEFT_OUT: "not served"},
    )

    if TYPE_CHECKING:  # an address is given as text and stored as host and port

        def __init__(self, *, address: str | Address | None = None) -> None: ...


class Page(_Settings):
    """Where the live page is served. Port 0 takes any free port."""

    address: ListenAddress | None = Field(
        default=None,
        description="Where the [live page](watching.md) is served.",
        examples=["127.0.0.1:8787"],
        json_schema_extra={LEFT_OUT: "not served"},
    )

    if TYPE_CHECKING:  # an address is given as text and stored as host and port

        def __init__(self, *, address: str | Address | None = None) -> None: ...


class TopicLayout(_Settings):
    """How `balajoin topics` creates topics that are missing."""

    partitions: Annotated[WholeNumber, Field(ge=1, le=10_000)] = Field(
        default=4, description="Number of partitions.", examples=[4]
    )
    replication: Annotated[WholeNumber, Field(ge=1, le=100)] = Field(
        default=1, description="Number of copies that the brokers keep.", examples=[3]
    )


class Config(_Settings):
    """All settings of one service."""

    name: Text = Field(
        default="balajoin", description="The query's name in Spark and in logs.", examples=["orders-with-clicks"]
    )
    kafka: Kafka
    probe: Stream
    build: Stream
    join: JoinSettings
    output: Output
    run: Run
    metrics: Metrics = Metrics()
    page: Page = Page()
    topics: TopicLayout = TopicLayout()
    spark: SparkConf = Field(
        default={}, description="Any Spark conf, in a table `[spark]`.", examples=[{"spark.driver.memory": "4g"}]
    )

    _substituted_secrets: tuple[str, ...] = PrivateAttr(default=())

    @model_validator(mode="before")
    @classmethod
    def _side_topics_follow_the_output(cls, sections: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_side_topics(sections)

    @field_validator("output")
    @classmethod
    def _one_role_a_topic(cls, output: Output, info: ValidationInfo) -> Output:
        clashes = topic_clashes({**info.data, "output": output})
        if clashes:
            raise PydanticCustomError("problems", "topic clash", {"problems": clashes})
        return output

    @property
    def topics_by_setting(self) -> dict[str, str]:
        """Every topic of the service by the dotted setting that names it, inputs first."""
        return _topics_by_setting(dict(self))

    @property
    def redactor(self) -> Redactor:
        """Removes this service's secrets from a text. The service and the CLI clean all text of other programs."""
        tables = (self.kafka.options, self.kafka.java, self.kafka.librdkafka, self.spark)
        named = [value for table in tables for name, value in table.items() if is_secret(name)]
        return Redactor([*named, *self._substituted_secrets])

    def __repr__(self) -> str:
        return self.redactor(super().__repr__())

    def __str__(self) -> str:
        return self.redactor(super().__str__())


def with_side_topics(sections: Mapping[str, Any]) -> Mapping[str, Any]:
    """Names each side topic that was left out after the output topic, unless the output topic itself is wrong.

    Sections may be models or tables of a file.
    """
    join, output = sections.get("join"), sections.get("output")
    topic = output.get("topic") if isinstance(output, Mapping) else getattr(output, "topic", None)
    if not is_topic(topic):
        return sections
    if isinstance(join, JoinSettings):
        return {**sections, "join": join.with_side_topics(topic)}
    if isinstance(join, Mapping):
        return {**sections, "join": {**{name: f"{topic}.{end}" for name, end in SIDE_TOPICS.items()}, **join}}
    return sections


_SELF_JOIN = ("probe.topic", "build.topic")


def topic_clashes(sections: Mapping[str, object]) -> list[Problem]:
    """Sections may be models or tables of a file. So a clash is reported together with other problems of a file."""
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
