"""`kernel` compiles a function with numba, and caches the machine code for exactly this source of balajoin.

Numba checks only whether the function's own file has changed. A kernel that calls a function of another file would keep
that function's old code, and crash. So the name of the cache folder is a hash over all source files.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

_PACKAGE = Path(__file__).parents[1]
_OUTDATED_AFTER_S = 86_400  # until then a process of the old source may still run


Function = TypeVar("Function", bound=Callable[..., Any])


def kernel(function: Function) -> Function:
    return _compiled(function)


def inlined(function: Function) -> Function:
    """A kernel that is inlined into its callers, because they call it for every row."""
    return _compiled(function, inline="always")


def _compiled(function: Function, **options: Any) -> Function:
    import numba  # takes half a second, and the driver only wants to know whether anything is to be compiled

    config: Any = numba.config
    usual = config.CACHE_DIR
    config.CACHE_DIR = _folder() or usual
    try:
        compiled: Function = numba.njit(cache=True, **options)(function)
        return compiled
    finally:
        config.CACHE_DIR = usual  # the setting is global


def have_been_compiled() -> bool:
    """Whether an earlier process has compiled kernels of exactly this source, and left them in the cache."""
    folder = _folder()
    return bool(folder) and any(Path(folder).glob("*.nbi"))


@contextmanager
def only_compiler() -> Iterator[None]:
    """Within, no other process compiles kernels of this source: who waits finds them in the cache afterwards."""
    folder = _folder()
    if not folder:
        yield
        return
    with Path(folder, "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@cache
def _folder() -> str:
    """The cache folder. Empty where the package folder is read-only: then numba chooses a place of its own."""
    folder = _PACKAGE / "__pycache__" / f"kernels-{_fingerprint()}"
    try:
        if not folder.exists():
            _remove_outdated(folder.parent)
            folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def _fingerprint() -> str:
    seen = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        status = path.stat()
        seen.update(f"{path.relative_to(_PACKAGE)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:16]


def _remove_outdated(folder: Path) -> None:
    with suppress(OSError):
        for old in folder.glob("kernels-*"):
            if time.time() - old.stat().st_mtime > _OUTDATED_AFTER_S:
                shutil.rmtree(old, ignore_errors=True)
