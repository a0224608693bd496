"""Result rows as nodes build them from a probe row and a build row."""

from typing import Any

UNMATCHED: dict[str, Any] = {"build_value": None, "build_time": None, "build_partition": None, "build_offset": None}


def row(key: bytes, probe: bytes | None, build: bytes | None, **other: Any) -> dict[str, Any]:
    return {
        "key": key,
        "probe_value": probe,
        "probe_time": 1_700_000_000_123_456,
        "probe_partition": 1,
        "probe_offset": 20,
        "build_value": build,
        "build_time": 0,
        "build_partition": 0,
        "build_offset": 3_000_000_000,
        **other,
    }
