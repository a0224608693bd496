"""How small state is written: a magic, a kind, a version and a checksum around JSON. Nothing read here can run code."""

import json
import zlib
from typing import Any

from balajoin.errors import StateError

_MAGIC = b"bala"


def encode(kind: str, version: int, content: dict[str, Any]) -> bytes:
    body = json.dumps({"kind": kind, "version": version, "content": content}, separators=(",", ":")).encode()
    return _MAGIC + zlib.crc32(body).to_bytes(4, "big") + body


def decode(kind: str, version: int, data: bytes) -> dict[str, Any]:
    """The content, if `data` is whole, of this kind and of this version."""
    if len(data) <= 8 or data[:4] != _MAGIC or zlib.crc32(data[8:]) != int.from_bytes(data[4:8], "big"):
        raise StateError(f"the {kind} state is damaged: restore the checkpoint from a copy, or start with a new one")
    written = json.loads(data[8:])
    if written["kind"] != kind:
        raise StateError(f"found {written['kind']} state instead of {kind} state: is this checkpoint another join's?")
    if written["version"] != version:
        raise StateError(
            f"the {kind} state has version {written['version']}, this balajoin reads version {version}: "
            "run the balajoin that wrote it, or start with a new checkpoint"
        )
    content: dict[str, Any] = written["content"]
    return content
