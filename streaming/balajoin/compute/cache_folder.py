"""The folder of a node's local files: it belongs to one user, and nobody else can read or write it.

Whoever can write there can change results, so the folder is checked before it is used. It is `balajoin-<uid>` in
`run.cache_dir`, or in the system's temporary folder. The user is that of the process that runs the node: executors may
run as another user than the driver, and several users may share a machine. The temporary folder is used rather than
`~/.cache`, because an executor's user may have no home, or one on a network disk.

Files and folders are reached from the open descriptor of the folder they are in, and links are never followed. So
nothing outside is read or deleted, even if somebody replaces the folder while a batch runs.
"""

import logging
import os
import re
import shutil
import stat
import tempfile
import time
import weakref
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

_log = logging.getLogger(__name__)

_ABANDONED_AFTER_S = 3 * 86_400
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LINEAGE = re.compile(r"[0-9a-f]{32}")
_NODE = re.compile(r"node-[0-9]+")


class PrivateFolder:
    """A folder that only this user can use. An OSError says why it cannot be used."""

    _descriptor: int

    def __init__(self, path: Path, parent: "PrivateFolder | None" = None, *, make: bool = True) -> None:
        self.path = path
        name, at = (path, None) if parent is None else (path.name, parent._descriptor)
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=at)
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(f"{path} is a link, or no folder")
        self._descriptor = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        weakref.finalize(self, os.close, self._descriptor)
        opened = os.fstat(self._descriptor)
        if opened.st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to user {opened.st_uid}, and the node runs as {os.geteuid()}")
        if opened.st_mode & _OTHERS:
            raise PermissionError(f"other users have rights in {path} (mode {stat.S_IMODE(opened.st_mode):o})")

    def folder(self, name: str, *, make: bool = True) -> "PrivateFolder":
        return PrivateFolder(self.path / name, self, make=make)

    def names(self) -> list[str]:
        return os.listdir(self._descriptor)

    def status(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self._descriptor, follow_symlinks=False)

    def create(self, name: str) -> BinaryIO:
        """Creates a file, which must not exist yet."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.fdopen(os.open(name, flags, 0o600, dir_fd=self._descriptor), "wb")

    def open(self, name: str) -> BinaryIO:
        """Opens an existing file. It must be a regular file of this user."""
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # do not wait for a pipe
        file = os.fdopen(os.open(name, flags, dir_fd=self._descriptor), "rb")
        opened = os.fstat(file.fileno())
        if not stat.S_ISREG(opened.st_mode) or opened.st_uid != os.geteuid():
            file.close()
            raise PermissionError(f"{name} is not an ordinary file of user {os.geteuid()}")
        return file

    def remove(self, name: str) -> None:
        """Removes a file, or a link but not its target; a folder stays."""
        with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
            os.unlink(name, dir_fd=self._descriptor)

    def remove_folder(self, name: str) -> None:
        """Removes a folder and all it contains. A link and its target stay."""
        shutil.rmtree(name, ignore_errors=True, dir_fd=self._descriptor)

    def remove_empty_folder(self, name: str) -> None:
        with suppress(OSError):
            os.rmdir(name, dir_fd=self._descriptor)


def place(cache_dir: str | None) -> Path:
    """The folder on the machine that calls this: an executor's temporary folder may differ from the driver's."""
    return Path(cache_dir or tempfile.gettempdir())


def node_folder(place: Path, lineage: str, node: int) -> PrivateFolder | None:
    """None if the folder is not safe or cannot be made. The node then works without local files.

    The join goes on: the folder is only a copy, and may become unusable on any executor at any time.
    """
    try:
        return _own_folder(place).folder(lineage).folder(f"node-{node}")
    except OSError as unfit:
        _warn_once(
            f"no local files are kept: {unfit}. All state is now read from the checkpoint in every batch, and held in "
            f"memory. Remove {_own_path(place)}, or set run.cache_dir to another folder"
        )
        return None


def remove_abandoned(place: Path) -> None:
    """Removes local files of checkpoints that no longer run here, or of a first batch that failed."""
    with suppress(OSError):
        own = _own_folder(place)
        for lineage in filter(_LINEAGE.fullmatch, own.names()):
            with suppress(OSError):
                nodes = own.folder(lineage, make=False)
                for node in filter(_NODE.fullmatch, nodes.names()):
                    if time.time() - nodes.status(node).st_mtime > _ABANDONED_AFTER_S:
                        nodes.remove_folder(node)
                        own.remove_empty_folder(lineage)


def _own_path(place: Path) -> Path:
    return place / f"balajoin-{os.geteuid()}"


def _own_folder(place: Path) -> PrivateFolder:
    place.mkdir(parents=True, exist_ok=True)
    return PrivateFolder(_own_path(place))


@cache
def _warn_once(text: str) -> None:
    """Warns once in each process: an executor has several, which do not know of each other."""
    _log.warning(text)
