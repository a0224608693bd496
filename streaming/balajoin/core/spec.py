"""What the operators of a join need to know about the join. Imports nothing heavy: see `compute.processor`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from balajoin.core.sides import Side

JoinType = Literal["inner", "left", "right", "full", "left_semi", "left_anti"]


@dataclass(frozen=True)
class Kind:
    """The results that a type of join emits."""

    pairs: bool
    alone: frozenset[Side] = frozenset()
    """Emits a row of these sides when it is known to have no match."""
    first_match: bool = False
    """Emits a probe row once, when it meets its first match."""

    @property
    def awaited(self) -> frozenset[Side]:
        """The sides for whose rows a node must find out whether they have a match."""
        return self.alone | {"probe"} if self.first_match else self.alone


KINDS: dict[JoinType, Kind] = {
    "inner": Kind(pairs=True),
    "left": Kind(pairs=True, alone=frozenset({"probe"})),
    "right": Kind(pairs=True, alone=frozenset({"build"})),
    "full": Kind(pairs=True, alone=frozenset({"probe", "build"})),
    "left_semi": Kind(pairs=False, first_match=True),
    "left_anti": Kind(pairs=False, alone=frozenset({"probe"})),
}


@dataclass(frozen=True)
class Window:
    """The times at which rows of the other side match, relative to the looking row's time. Both ends are included."""

    lower: int
    upper: int


class Settings(Protocol):
    """The settings that a node depends on. `config.models.JoinSettings` has them."""

    @property
    def nodes(self) -> int: ...
    @property
    def before_ms(self) -> int: ...
    @property
    def after_ms(self) -> int: ...
    @property
    def lateness_ms(self) -> int: ...
    @property
    def idle_after_ms(self) -> int: ...
    @property
    def type(self) -> JoinType: ...


@dataclass(frozen=True)
class JoinSpec:
    """What a node needs to know about the join. Event times are in microseconds, processing times in milliseconds.

    `pins` are the settings that stored rows depend on: see `core.pins`. `plan` is the plan of `core.messages.Stamp`.
    """

    nodes: int
    before_us: int
    after_us: int
    lateness_us: int
    idle_after_ms: int
    sources: dict[Side, int]
    pins: dict[str, Any]
    type: JoinType = "inner"
    plan: str = ""

    @classmethod
    def of(
        cls, settings: Settings, pins: Mapping[str, Any], sources: Mapping[Side, int], *, plan: str = ""
    ) -> "JoinSpec":
        return cls(
            nodes=settings.nodes,
            before_us=settings.before_ms * 1000,
            after_us=settings.after_ms * 1000,
            lateness_us=settings.lateness_ms * 1000,
            idle_after_ms=settings.idle_after_ms,
            sources=dict(sources),
            pins=dict(pins),
            type=settings.type,
            plan=plan,
        )

    @property
    def kind(self) -> Kind:
        return KINDS[self.type]

    @property
    def slice_us(self) -> int:
        """A row is stored for about before + after + lateness. Rows are dropped in slices of a quarter of that time."""
        return max(1_000_000, (self.before_us + self.after_us + self.lateness_us) // 4)

    def window(self, looking: Side) -> Window:
        """build.time − probe.time lies within [−before, after]."""
        if looking == "probe":
            return Window(-self.before_us, self.after_us)
        return Window(-self.after_us, self.before_us)


ColumnKind = Literal["binary", "text", "literal"]
"""How JSON shows a column's bytes: as text, or in base64 if they are no UTF-8; as text; or as they are."""


@dataclass(frozen=True)
class ResultFormat:
    """How results become records of the output topic: see `sinks.values`.

    The value is one JSON object, or `value_columns`, one after the other. `with_id` adds the result's id, for those who
    want it in a header.
    """

    type: JoinType
    kinds: Mapping[str, ColumnKind]
    """Of key, probe_value and build_value."""

    value_columns: tuple[str, ...] = ()
    with_id: bool = False


@dataclass(frozen=True)
class Target:
    """Where results go. `options` are librdkafka's, and may hold passwords."""

    topic: str
    commit_topic: str
    options: tuple[tuple[str, str], ...] = field(repr=False)


@dataclass(frozen=True)
class SideTopics:
    """The topics a node writes to, the input topic of each side (`origins`), and librdkafka's options for writing."""

    late: str
    control: str
    replicas: str
    origins: dict[Side, str]
    options: tuple[tuple[str, str], ...] = field(repr=False)
