"""Data that older balajoins wrote, from `data/`: states as bytes, and a complete checkpoint."""

import base64
import json
import tarfile
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def states(version: int) -> tuple[dict[int, dict[int, bytes]], dict[int, bytes]]:
    """The nodes' states by node and number (-1 is the head), and the sources' states by label."""
    written = json.loads((DATA / f"state-{version}" / "states.json").read_text())
    nodes = {
        int(node): {int(number): base64.b64decode(text) for number, text in entries.items()}
        for node, entries in written["nodes"].items()
    }
    return nodes, {int(label): base64.b64decode(text) for label, text in written["sources"].items()}


def checkpoint(version: int, folder: Path) -> Path:
    """Unpacks a checkpoint, and corrects the absolute paths by which Spark's operators name their schemas."""
    with tarfile.open(DATA / f"state-{version}" / "checkpoint.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    place = folder / "checkpoint"
    for metadata in place.glob("state/*/_metadata/v2/*"):
        metadata.write_text(metadata.read_text().replace("file:/checkpoint", place.as_uri()))
    return place
