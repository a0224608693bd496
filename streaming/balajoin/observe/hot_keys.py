"""The skewed keys of a whole join, put together from what each source has of them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from balajoin.observe.report import BatchReport
from balajoin.routing.policies import HotKey as SourceHotKey


@dataclass(frozen=True)
class HotKey:
    """A skewed key, as all sources together see it."""

    hash: int
    share: float
    """Of the recent rows."""

    nodes: tuple[int, ...]
    """U(x); its home comes first."""

    key: str = ""

    @property
    def name(self) -> str:
        return self.key or f"hash {self.hash & (1 << 64) - 1:016x}"


class HotKeys:
    """As of the last report. A source that had nothing in a batch counts as it was before."""

    def __init__(self) -> None:
        self._by_source: dict[int, Sequence[SourceHotKey]] = {}
        self._names: dict[int, str] = {}

    def add(self, report: BatchReport) -> None:
        self._by_source.update({source.source: source.hot_keys for source in report.sources})
        hot = [key for keys in self._by_source.values() for key in keys]
        known = {**self._names, **{key.hash: key.key for key in hot if key.key}}
        self._names = {key.hash: known[key.hash] for key in hot if key.hash in known}

    def all(self) -> list[HotKey]:
        """Most frequent first."""
        return merged(self._by_source.values(), self._names)


def merged(lists: Iterable[Sequence[SourceHotKey]], names: Mapping[int, str] | None = None) -> list[HotKey]:
    """Most frequent first; one list a source."""
    known = [keys for keys in lists if keys]
    total = sum(keys[0].rows / keys[0].share for keys in known)
    rows: dict[int, int] = {}
    nodes: dict[int, dict[int, None]] = {}
    for key in (key for keys in known for key in keys):
        rows[key.hash] = rows.get(key.hash, 0) + key.rows
        nodes.setdefault(key.hash, {}).update(dict.fromkeys(key.nodes))
    most_first = sorted(rows, key=lambda hash_: (-rows[hash_], hash_))
    known_names = names or {}
    return [HotKey(hash_, rows[hash_] / total, tuple(nodes[hash_]), known_names.get(hash_, "")) for hash_ in most_first]
