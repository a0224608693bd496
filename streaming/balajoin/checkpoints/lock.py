"""Allows one process per checkpoint. A lock covers this machine; elsewhere Spark notices a second one by its logs."""

import fcntl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from balajoin.errors import StateError

_FILE = "balajoin.lock"


@contextmanager
def sole_user(checkpoint: Path | None, *, create: bool = False) -> Iterator[None]:
    """Inside this context no other process on this machine runs on the checkpoint or rescales it.

    None stands for a checkpoint that is not on this machine's disk: nothing is locked.
    """
    with ExitStack() as stack:
        if checkpoint is not None:
            with suppress(OSError):  # no folder, or no right to write: Spark reports that itself
                if create:
                    checkpoint.mkdir(parents=True, exist_ok=True)
                _lock(stack.enter_context((checkpoint / _FILE).open("a")), checkpoint)
        yield


def _lock(file: IO[str], checkpoint: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StateError(
            f"another process uses the checkpoint {checkpoint}: stop it, or give this one a checkpoint of its own"
        ) from None
