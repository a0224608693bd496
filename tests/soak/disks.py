"""Small disks in memory that can be filled or made read-only. Only this process sees them, and they end with it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_INSIDE = "BALAJOIN_SOAK_DISKS"
_MIB = 1 << 20


def go_where_disks_can_be_made() -> bool:
    """Restarts this program with its own mounts. Returns False if there is neither root nor user namespaces."""
    if _INSIDE in os.environ:
        return os.environ[_INSIDE] == "yes"
    for unshare in (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"]):
        command = [*unshare, "--propagation", "private"]
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True).returncode == 0:
            os.environ[_INSIDE] = "yes"
            arguments = sys.orig_argv[1:]
            os.execvp("unshare", [*command, sys.executable, *arguments])
    return False


def make(folder: Path, size_mib: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder))


def remove(folder: Path) -> None:
    _run("umount", "--lazy", str(folder))


@contextmanager
def full(folder: Path) -> Iterator[None]:
    filler = folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            for size in (_MIB, 4096, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass
        yield
    finally:
        filler.unlink()


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    _run("mount", "--bind", str(folder), str(folder))
    try:
        _run("mount", "-o", "remount,bind,ro", str(folder))
        yield
    finally:
        _run("umount", "--lazy", str(folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True)
