"""Shows a checkpoint's summary as tables for people and as JSON for programs."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from balajoin.checkpoints.summary import CheckpointSummary, NodeSummary, SourceSummary
from balajoin.core.pins import shown

_EPOCH = datetime.fromtimestamp(0, UTC)


def as_json(summary: CheckpointSummary) -> dict[str, Any]:
    """Times are in ISO 8601. A time that is not known yet is null."""
    return {
        "checkpoint": summary.location,
        "join": summary.join,
        "batch": summary.batch,
        "unfinished_batch": summary.unfinished,
        "settings": shown(summary.pins),
        "offsets": dict(summary.offsets),
        "nodes": [_node_json(node) for node in summary.nodes],
        "sources": [_source_json(source, summary.keys) for source in summary.sources],
    }


def _node_json(node: NodeSummary) -> dict[str, Any]:
    return {
        "node": node.node,
        "rows": node.rows,
        "owed": node.owed,
        "blocks": node.blocks,
        "bytes": node.bytes,
        "oldest": _iso(node.oldest),
        "newest": _iso(node.newest),
        "watermarks": {side: _iso(time) for side, time in node.watermarks.items()},
        "leases": [
            {"hash": hash_, "node": at, "fragment": fragment, "until": _iso(until)}
            for (hash_, at, fragment), until in node.leases.items()
        ],
        "holds": node.holds,
        "pins": [
            {
                "hash": hash_,
                "fragment": fragment,
                "earliest": _iso(rows.earliest),
                "latest": _iso(rows.latest),
                "asked": rows.asked,
            }
            for (hash_, fragment), rows in node.uncovered.items()
        ],
    }


def _source_json(source: SourceSummary, keys: dict[int, str]) -> dict[str, Any]:
    return {
        "source": source.source,
        "newest": {side: _iso(time) for side, time in source.newest.items()},
        "leases": [
            {"hash": hash_, "node": node, "fragment": fragment, "until": _iso(until)}
            for hash_, node, fragment, until in source.leases
        ],
        "policy": source.policy,
        "hot_keys": [{**asdict(key), "key": keys.get(key.hash)} for key in source.hot_keys],
    }


def tables(summary: CheckpointSummary, most_keys: int) -> Iterator[RenderableType]:
    yield f"{summary.location}: {_moment(summary)}"
    yield ", ".join(f"{setting} {value}" for setting, value in shown(summary.pins).items())
    yield from (
        f"offsets of {topic}: {_places(ends)}"
        for offsets in summary.offsets.values()
        for topic, ends in offsets.items()
    )
    yield _nodes(summary)
    yield _sources(summary)
    if any(source.hot_keys for source in summary.sources):
        yield _hot_keys(summary, most_keys)


def _moment(summary: CheckpointSummary) -> str:
    if summary.join is None:
        owed = sum(node.owed for node in summary.nodes)
        return f"rescaled and not started yet, {owed:,} results are to be written"
    again = "" if summary.unfinished is None else f"; batch {summary.unfinished} was begun and will be repeated"
    return f"after batch {summary.batch} of join {summary.join}{again}"


def _nodes(summary: CheckpointSummary) -> Table:
    rows = ("probe", "fragments", "build", "replicas", "waiting", "bytes")
    table = _table("node", *rows, "oldest", "newest", "probe watermark", "build watermark", "leases", "holds", "pins")
    for node in summary.nodes:
        table.add_row(
            str(node.node),
            *(f"{node.rows[name]:,}" for name in ("probe", "fragment", "build", "replicas", "waiting")),
            f"{node.bytes:,}",
            *map(_short, (node.oldest, node.newest, node.watermarks["probe"], node.watermarks["build"])),
            *(str(count) for count in (len(node.leases), node.holds, len(node.uncovered))),
        )
    return table


def _sources(summary: CheckpointSummary) -> Table:
    table = _table("source", "newest probe", "newest build", "policy", "leases", "frequent keys")
    for source in summary.sources:
        times = (_short(source.newest[side]) for side in ("probe", "build"))
        counts = (len(source.leases), len(source.hot_keys))
        table.add_row(str(source.source), *times, source.policy, *map(str, counts))
    return table


def _hot_keys(summary: CheckpointSummary, most: int) -> Table:
    table = _table("source", "key", "hash", "share", "rows", "nodes, home first")
    for source in summary.sources:
        for key in source.hot_keys[:most]:
            shown = summary.keys.get(key.hash, "?")
            nodes = " ".join(map(str, key.nodes))
            table.add_row(str(source.source), shown, str(key.hash), f"{key.share:.1%}", f"{key.rows:,}", nodes)
    return table


def _table(first: str, *columns: str) -> Table:
    table = Table(first, box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _places(ends: Any) -> str:
    return ", ".join(f"{partition}/{offset:,}" for partition, offset in sorted(ends.items(), key=lambda e: int(e[0])))


def _iso(micros: int | None) -> str | None:
    return None if micros is None else (_EPOCH + timedelta(microseconds=micros)).isoformat()


def _short(micros: int | None) -> str:
    return "" if micros is None else f"{_EPOCH + timedelta(microseconds=micros):%Y-%m-%d %H:%M:%S}"
