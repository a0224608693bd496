"""Markers: a node writes one with the results of each batch, and a repeated batch reads it.

A marker names the settings that decide which node makes which results. If some nodes have written their results of a
batch, the batch can only be finished under the same settings.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from balajoin.core.codec import integer
from balajoin.errors import StateError
from balajoin.routing.rule import ROUTING_VERSION

if TYPE_CHECKING:  # workers need no pydantic
    from balajoin.config.models import JoinSettings

VERSION = 1
_WRITE_AGAIN = "set a new output.commit_topic, which writes its results again with the same ids"
# These settings move no result from one node to another, and after a crash a user may have to change them.
_FREE_TO_CHANGE = {"dead_letter_topic", "late_topic", "control_topic", "replica_topic", "max_rows_per_batch"}
_SHOWN_CHARACTERS = 64
_ROUTING = "(routing)"


@dataclass(frozen=True)
class Marker:
    """`planned_ms` is the batch's time, which the checkpoint keeps with its offsets. A batch planned anew differs."""

    query: str
    node: int
    batch: int
    planned_ms: int
    rows: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> bytes:
        """The record key, by which Kafka compacts the topic."""
        return key_of(self.query, self.node)

    def to_json(self) -> bytes:
        return json.dumps({"version": VERSION, **asdict(self)}, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes | None) -> "Marker":
        try:
            content = json.loads(value or b"")
            version = content["version"]
            if version == VERSION:
                return cls._checked(content)
        except (AttributeError, KeyError, TypeError, ValueError):
            raise StateError("a marker on the commit topic is damaged: find out who else writes to it") from None
        raise StateError(f"the commit topic holds markers of format {version}: run the balajoin that wrote them")

    @classmethod
    def _checked(cls, content: Mapping[str, Any]) -> "Marker":
        query, node, batch, planned_ms = (content[name] for name in ("query", "node", "batch", "planned_ms"))
        settings = content.get("settings", {})
        if not isinstance(query, str) or not all(isinstance(text, str) for entry in settings.items() for text in entry):
            raise TypeError("not a text")
        return cls(query, integer(node), integer(batch), integer(planned_ms), integer(content.get("rows", 0)), settings)

    def is_repeated_by(self, now: "Marker") -> bool:
        """Whether the rows of `now` are already written.

        Raises if the checkpoint is older than the written results, or if they were written with other settings.
        """
        if now.batch > self.batch:
            return False
        if (now.batch, now.planned_ms) != (self.batch, self.planned_ms):
            raise StateError(
                f"node {self.node} has already written a batch {self.batch} other than this one: the checkpoint is "
                f"older than the results. Start from the newest copy of the checkpoint, or {_WRITE_AGAIN}"
            )
        self.require_settings(now.settings)
        return True

    def require_settings(self, settings: Mapping[str, str]) -> None:
        if self.settings.get(_ROUTING) != settings.get(_ROUTING):
            raise StateError(
                f"batch {self.batch} was cut short under another version of balajoin, which may send its rows to other "
                f"nodes, and part of it is written. Start once with that version, or {_WRITE_AGAIN}"
            )
        for name in sorted(self.settings.keys() | settings.keys()):
            was, is_now = self.settings.get(name, "not set"), settings.get(name, "not set")
            if was != is_now:
                raise StateError(
                    f"batch {self.batch} was cut short when join.{name} was {was}, and part of it is written; it is "
                    f"{is_now} now. Start once as it was, or {_WRITE_AGAIN}"
                )

    def require_rows(self, rows: int) -> None:
        if rows != self.rows:
            raise StateError(
                f"node {self.node} wrote {self.rows} results of batch {self.batch}, and now has {rows}: settings, or "
                f"what is between the join and its sink, changed in the middle of it. Undo that, or {_WRITE_AGAIN}"
            )


def key_of(query: str, node: int) -> bytes:
    return f"{query}/{node}".encode()


def deciding(settings: "JoinSettings") -> dict[str, str]:
    """What decides which results a batch has, and on which node: settings of the join, and balajoin's own routing."""
    named = _flat(settings.model_dump(mode="json", by_alias=True, exclude=_FREE_TO_CHANGE))
    return {_ROUTING: str(ROUTING_VERSION), **dict(named)}


def _flat(table: Mapping[str, object], prefix: str = "") -> list[tuple[str, str]]:
    texts: list[tuple[str, str]] = []
    for name, value in table.items():
        if isinstance(value, Mapping):
            texts.extend(_flat(value, f"{prefix}{name}."))
        else:
            texts.append((f"{prefix}{name}", _short(json.dumps(value))))
    return texts


def _short(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
