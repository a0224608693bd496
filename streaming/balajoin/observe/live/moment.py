"""One batch of one join as one line of JSON: the page, `balajoin top`, recorded runs and plots all read it."""

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_SHOWN_CHARACTERS = 64


def printable(text: str) -> str:
    """Escapes control characters. Anybody may have written them to a topic, and none may reach a terminal."""
    shown = text if text.isprintable() else "".join(map(_escaped, text))
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[: _SHOWN_CHARACTERS - 1]}…"


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()


Shown = Annotated[str, AfterValidator(printable)]
Count = Annotated[int, Field(ge=0)]
Node = Annotated[int, Field(ge=0, lt=1024)]
ByNode = Annotated[tuple[Count, ...], Field(min_length=1, max_length=1024)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class SkewedKey(_Line):
    key: Shown
    share: Share
    """The key's share of recent probe rows."""

    nodes: Annotated[tuple[Node, ...], Field(min_length=1)]
    """U(x), the nodes that get the key's probe rows. Its home comes first."""


class Moment(_Line):
    join: Shown
    policy: Shown
    epsilon: Share | None
    """The limit of B. None if the policy balances work, which has another bound."""

    batch: Count
    ended_ms: Count
    duration_ms: Count
    rows_in: Count
    rows_out: Count
    node_rows: ByNode
    """Rows that the sources sent to each node in this batch, of both streams."""

    skewed_rows: ByNode
    """Of these, the rows of skewed keys."""

    b_all: Share | None
    """B of all rows of recent batches; older rows count less. None before the first row."""

    b_skewed: Share | None
    """B of what the policy balances: skewed rows, or work. None where there is nothing to balance."""

    traffic: dict[Shown, Count]
    """Bytes that left the node they were on, by kind."""

    signals: Count
    pulls: Count
    waiting_rows: Count
    """Rows of the topics that were unread when the batch began."""

    late_rows: Count
    dead_letters: Count
    stored_rows: Count
    hot_keys: tuple[SkewedKey, ...]
    """Most frequent first."""
