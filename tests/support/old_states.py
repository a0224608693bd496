"""What older balajoins left behind, from `data/`: states as bytes, and a whole checkpoint."""

import base64
import json
import tarfile
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"


def states(version: int) -> tuple[dict[int, dict[int, bytes]], dict[int, bytes]]:
    """Of the nodes by number, -1 for the head, and of the sources by label."""
    written = json.loads((DATA / f"state-{version}" / "states.json").read_text())
    nodes = {
        int(node): {int(number): base64.b64decode(text) for number, text in entries.items()}
        for node, entries in written["nodes"].items()
    }
    return nodes, {int(label): base64.b64decode(text) for label, text in written["sources"].items()}


def checkpoint(version: int, folder: Path) -> Path:
    """Spark's operators name their schema by its whole path, so a checkpoint that moves has to be told."""
    with tarfile.open(DATA / f"state-{version}" / "checkpoint.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    place = folder / "checkpoint"
    for metadata in place.glob("state/*/_metadata/v2/*"):
        metadata.write_text(metadata.read_text().replace("file:/checkpoint", place.as_uri()))
    return place
