"""Configuration files for tests."""

import json
from typing import Any

SECTIONS: dict[str, dict[str, Any]] = {
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "probe": {"topic": "orders"},
    "build": {"topic": "clicks"},
    "join": {"before": "5 min", "after": "0 s"},
    "output": {"topic": "joined"},
    "run": {"checkpoint": "/var/lib/balajoin"},
}


def join_toml(**changes: dict[str, Any]) -> str:
    """A file with only the required settings. Changes are given by section: `join={"nodes": 2}`."""
    lines = []
    for section in SECTIONS | changes:
        lines.append(f"[{section}]")
        settings = SECTIONS.get(section, {}) | changes.get(section, {})
        lines += [f"{name} = {json.dumps(value, default=str)}" for name, value in settings.items()]
    return "\n".join([*lines, ""])
