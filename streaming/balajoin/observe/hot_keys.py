"""The skewed keys of a whole join, merged from those of its sources."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from balajoin.observe.report import BatchReport
from balajoin.routing.policies import HotKey


@dataclass(frozen=True)
class JoinHotKey:
    """A skewed key of a whole join."""

    hash: int
    share: float
    """The key's share of recent probe rows."""

    nodes: tuple[int, ...]
    """U(x), the nodes that get the key's probe rows. Its home comes first."""

    key: str = ""

    @property
    def name(self) -> str:
        return self.key or f"hash {self.hash & (1 << 64) - 1:016x}"


class HotKeys:
    """The skewed keys as of the last report. A source without rows in a batch keeps its earlier keys."""

    def __init__(self) -> None:
        self._by_source: dict[int, Sequence[HotKey]] = {}
        self._names: dict[int, str] = {}

    def add(self, report: BatchReport) -> None:
        self._by_source.update({source.source: source.hot_keys for source in report.sources})
        hot = [key for keys in self._by_source.values() for key in keys]
        known = {**self._names, **{key.hash: key.key for key in hot if key.key}}
        self._names = {key.hash: known[key.hash] for key in hot if key.hash in known}

    def all(self) -> list[JoinHotKey]:
        """Most frequent first."""
        return merged(self._by_source.values(), self._names)


def merged(lists: Iterable[Sequence[HotKey]], names: Mapping[int, str] | None = None) -> list[JoinHotKey]:
    """Merges one list of each source, and returns the most frequent key first."""
    known = [keys for keys in lists if keys]
    total = sum(keys[0].rows / keys[0].share for keys in known)
    rows: dict[int, int] = {}
    nodes: dict[int, dict[int, None]] = {}
    for key in (key for keys in known for key in keys):
        rows[key.hash] = rows.get(key.hash, 0) + key.rows
        nodes.setdefault(key.hash, {}).update(dict.fromkeys(key.nodes))
    most_first = sorted(rows, key=lambda hash_: (-rows[hash_], hash_))
    known_names = names or {}
    return [
        JoinHotKey(hash_, rows[hash_] / total, tuple(nodes[hash_]), known_names.get(hash_, "")) for hash_ in most_first
    ]
