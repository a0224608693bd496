"""The skewed keys of a whole join, put together from what each source has of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from balajoin.routing.policies import HotKey as SourceHotKey


@dataclass(frozen=True)
class HotKey:
    """A skewed key, as all sources together see it."""

    hash: int
    share: float
    """Of the recent rows."""

    nodes: tuple[int, ...]
    """U(x); its home comes first."""


def merged(lists: Iterable[Sequence[SourceHotKey]]) -> list[HotKey]:
    """Most frequent first; one list a source."""
    known = [keys for keys in lists if keys]
    total = sum(keys[0].rows / keys[0].share for keys in known)
    rows: dict[int, int] = {}
    nodes: dict[int, dict[int, None]] = {}
    for key in (key for keys in known for key in keys):
        rows[key.hash] = rows.get(key.hash, 0) + key.rows
        nodes.setdefault(key.hash, {}).update(dict.fromkeys(key.nodes))
    most_first = sorted(rows, key=lambda hash_: (-rows[hash_], hash_))
    return [HotKey(hash_, rows[hash_] / total, tuple(nodes[hash_])) for hash_ in most_first]
