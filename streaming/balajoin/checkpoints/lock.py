"""One process a checkpoint. On this machine a lock says so at once; elsewhere Spark notices it by its logs."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from balajoin.errors import StateError

_FILE = "balajoin.lock"


@contextmanager
def sole_user(checkpoint: str) -> Iterator[None]:
    """Within, nobody else on this machine runs on the checkpoint, or makes another of it."""
    parts = urlsplit(checkpoint)
    if parts.scheme not in ("", "file"):
        yield
        return
    folder = Path(parts.path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / _FILE).open("a")
    except OSError as refused:
        raise StateError(
            f"the checkpoint {checkpoint} cannot be written: {refused.strerror}. Check the rights of its folder"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StateError(
                f"another process uses the checkpoint {checkpoint}: stop it, or give this one a checkpoint of its own"
            ) from None
        yield
