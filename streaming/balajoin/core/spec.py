"""What a node has to know of the join. Imports nothing heavy: see `compute.processor`."""

from dataclasses import dataclass, field
from typing import Any, Literal

from balajoin.core.sides import Side

JoinType = Literal["inner", "left", "right", "full", "left_semi", "left_anti"]


@dataclass(frozen=True)
class Kind:
    """What is a result in a type of join."""

    pairs: bool
    alone: frozenset[Side] = frozenset()
    """A row of these sides, when it is sure to have no match."""
    first_match: bool = False
    """A probe row, once, when it has met a match."""

    @property
    def awaited(self) -> frozenset[Side]:
        """Sides of which a node must know who has met a match."""
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
    """The times, relative to the looking row's, at which the other side matches. Both ends belong to it."""

    lower: int
    upper: int


@dataclass(frozen=True)
class JoinSpec:
    """What a node has to know of the join. Times in microseconds, processing times in milliseconds.

    `pins` are settings that stored rows depend on: a checkpoint made with others is refused, see `balajoin.pins`.
    `plan` is that of `Stamp`.
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

    @property
    def kind(self) -> Kind:
        return KINDS[self.type]

    @property
    def slice_us(self) -> int:
        """Rows live for about before + after + lateness; they leave by the quarter of it."""
        return max(1_000_000, (self.before_us + self.after_us + self.lateness_us) // 4)

    def window(self, looking: Side) -> Window:
        """build.time − probe.time lies within [−before, after]."""
        if looking == "probe":
            return Window(-self.before_us, self.after_us)
        return Window(-self.after_us, self.before_us)


@dataclass(frozen=True)
class SideTopics:
    """Where a node publishes, the topic that each side's rows came from, and librdkafka's options to write there."""

    late: str
    control: str
    replicas: str
    origins: dict[Side, str]
    options: tuple[tuple[str, str], ...] = field(repr=False)
