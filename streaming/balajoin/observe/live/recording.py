"""Records runs in a file, one moment per line, of one join or of several."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from balajoin.errors import BalaJoinError, ConfigError, Problem
from balajoin.observe.live.moment import Moment

_logger = logging.getLogger(__name__)
_LARGEST_BYTES = 64 << 20  # some 100,000 batches of a few nodes


class Recording:
    """Appends to a file. A file that has grown too large is renamed to `<name>.1` and replaces an older one."""

    def __init__(self, path: Path, setting: str = "run.record", *, largest_bytes: int = _LARGEST_BYTES) -> None:
        self._path = path
        self._largest_bytes = largest_bytes
        self._is_torn = False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.open("a").close()
            _drop_torn_line(path)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ConfigError([Problem(setting, f"cannot write {path}: {reason}", "name a file to be made")]) from None

    def add(self, moment: Moment) -> None:
        """Writes one line. If that fails, the join goes on, and the log says that the line is missing."""
        line = f"{moment.model_dump_json()}\n".encode()
        try:
            if self._is_torn:
                _drop_torn_line(self._path)
                self._is_torn = False
            with self._path.open("ab") as file:
                if file.tell() > 0 and file.tell() + len(line) > self._largest_bytes:
                    self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                    self._path.write_bytes(line)
                else:
                    file.write(line)
        except OSError as error:
            self._is_torn = True
            _logger.warning("the recorded run lacks batch %s of %s: %s", moment.batch, moment.join, error)


def _drop_torn_line(path: Path) -> None:
    """Removes half a line, which a crash or a full disk left: it would spoil the next line."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - 1, 0))
        if file.read() not in (b"", b"\n"):
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def read(path: Path) -> Iterator[Moment]:
    """Yields all that was recorded, without a last line that a crash cut short."""
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for number, line in enumerate(lines, 1):
                if line.endswith("\n") and line.strip():
                    yield _moment(path, number, line)
    except OSError as error:
        raise BalaJoinError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from None


def _moment(path: Path, number: int, line: str) -> Moment:
    try:
        return Moment.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        reason = f"{where}: {first['msg']}" if where else first["msg"]
        raise BalaJoinError(
            f"{path}, line {number}, is no batch of a recorded run ({reason}): run.record and demo --record make one"
        ) from None
