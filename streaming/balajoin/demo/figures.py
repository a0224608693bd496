"""What a policy did with the rows, added up from what the operators tell of each batch."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

_BYTES_OF_SOURCES = ("probe", "build")


@dataclass(frozen=True)
class HotKey:
    """A skewed key, as all sources together see it."""

    hash: int
    share: float
    """Of the recent rows."""

    nodes: tuple[int, ...]
    """U(x); its home comes first."""


@dataclass(frozen=True)
class Figures:
    node_rows: tuple[int, ...]
    """Rows that each node got, of both streams."""

    skewed_rows: tuple[int, ...]
    """Rows that each node got because their key is skewed."""

    traffic: Mapping[str, int]
    """Bytes that left the node they were on, by kind."""

    signals: int = 0
    pulls: int = 0
    pulled_rows: int = 0
    forwarded_rows: int = 0
    hot_keys_by_source: Mapping[str, Sequence[Mapping[str, Any]]] | None = None

    @classmethod
    def none(cls, nodes: int) -> Self:
        return cls((0,) * nodes, (0,) * nodes, dict.fromkeys((*_BYTES_OF_SOURCES, "replica"), 0))

    def with_batch(self, sent: Mapping[str, Any], done: Mapping[str, Any]) -> Self:
        """`sent` is what the batch's progress holds of its sources, `done` of its nodes: see `balajoin.observed`."""
        sources = {name: json.loads(note) for name, note in sent.items() if name.startswith("source_") and note}
        nodes = [json.loads(note) for note in done.values() if note]

        def told(name: str) -> int:
            return sum(int(node[name]) for node in nodes)

        new_bytes = {kind: sent.get(f"{kind}_bytes") or 0 for kind in _BYTES_OF_SOURCES}
        new_bytes["replica"] = told("replica_bytes")
        return replace(
            self,
            node_rows=_added(self.node_rows, (sent.get(f"rows_{node}") or 0 for node in range(len(self.node_rows)))),
            skewed_rows=_added(self.skewed_rows, *(source["skewed_rows"] for source in sources.values())),
            traffic={kind: total + new_bytes[kind] for kind, total in self.traffic.items()},
            signals=self.signals + sum(source["signals"] for source in sources.values()),
            pulls=self.pulls + told("pulls"),
            pulled_rows=self.pulled_rows + told("pulled_rows"),
            forwarded_rows=self.forwarded_rows + told("forwarded_rows"),
            hot_keys_by_source={
                **(self.hot_keys_by_source or {}),
                **{name: source["hot_keys"] for name, source in sources.items()},
            },
        )

    @property
    def hot_keys(self) -> list[HotKey]:
        """Most frequent first. A source that had nothing in the last batch counts as it was before."""
        lists = [keys for keys in (self.hot_keys_by_source or {}).values() if keys]
        total = sum(keys[0]["rows"] / keys[0]["share"] for keys in lists)
        rows: dict[int, int] = {}
        nodes: dict[int, dict[int, None]] = {}
        for key in (key for keys in lists for key in keys):
            rows[key["hash"]] = rows.get(key["hash"], 0) + key["rows"]
            nodes.setdefault(key["hash"], {}).update(dict.fromkeys(key["nodes"]))
        most_first = sorted(rows, key=lambda hash_: (-rows[hash_], hash_))
        return [HotKey(hash_, rows[hash_] / total, tuple(nodes[hash_])) for hash_ in most_first]

    @property
    def busiest(self) -> tuple[int, float]:
        """The node that got most rows, and their share of all."""
        largest = max(self.node_rows)
        return self.node_rows.index(largest), shares(self.node_rows)[self.node_rows.index(largest)]


def shares(node_rows: Sequence[int]) -> list[float]:
    total = sum(node_rows)
    return [rows / total if total else 0.0 for rows in node_rows]


def balance_factor(node_rows: Sequence[int]) -> float | None:
    """The paper's B: how far the least loaded node stays behind the most loaded; none before the first row."""
    most = max(node_rows, default=0)
    return (most - min(node_rows)) / most if most else None


def _added(totals: tuple[int, ...], *more: Iterable[int]) -> tuple[int, ...]:
    return tuple(map(sum, zip(totals, *more, strict=True)))
