"""Fetches a set of jars once, with the Ivy that PySpark contains, and keeps them in a cache folder."""

import fcntl
import hashlib
import importlib.util
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from balajoin.errors import SetupError
from balajoin.spark import java
from balajoin.spark.child import Child
from balajoin.spark.files import kafka_file

JarSet = Literal["connector", "broker"]
Notice = Callable[[str], None]

_log = logging.getLogger(__name__)
_CONNECT_TIMEOUT_MS = 20_000
_READ_TIMEOUT_MS = 60_000


def default_cache(environ: Mapping[str, str]) -> Path:
    if chosen := environ.get("BALAJOIN_CACHE"):
        return Path(chosen)
    if base := environ.get("XDG_CACHE_HOME"):
        return Path(base) / "balajoin"
    return Path.home() / ".cache" / "balajoin"


def fetch(
    set_name: JarSet, cache: Path, *, notice: Notice = _log.info, environ: Mapping[str, str] = os.environ
) -> list[Path]:
    """The jars of a set. Only the first call needs Java and the network; it calls `notice` before it waits."""
    return fetch_listed(kafka_file(f"{set_name}.xml"), cache, notice=notice, environ=environ)


def fetch_listed(
    ivy_file: Path, cache: Path, *, notice: Notice = _log.info, environ: Mapping[str, str] = os.environ
) -> list[Path]:
    """The jars that an Ivy file lists, as `fetch` gives those of a set."""
    set_name = ivy_file.stem
    version = hashlib.sha256(ivy_file.read_bytes()).hexdigest()[:12]
    folder = cache.absolute() / "jars" / f"{set_name}-{version}"
    if not folder.exists():
        java_command = java.require(environ)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with _only_process(folder.parent / f"{set_name}.lock", notice):
                if not folder.exists():
                    notice(f"fetching the {set_name} jars into {cache} (once, up to a minute)")
                    _download(java_command, ivy_file, folder)
        except OSError as error:
            raise SetupError(
                f"cannot keep jars in {cache} ({error}): set BALAJOIN_CACHE to a folder that can be written"
            ) from error
    return sorted(folder.glob("*.jar"))


@contextmanager
def _only_process(lock: Path, notice: Notice) -> Iterator[None]:
    """Holds a lock that the kernel releases however the process ends."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            notice("another process is fetching the same jars; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _download(java_command: Path, ivy_file: Path, folder: Path) -> None:
    """Fills a sibling of `folder` and renames it at the end, so that `folder` is complete as soon as it exists."""
    prefix = f".{ivy_file.stem}-"
    for interrupted in folder.parent.glob(f"{prefix}*"):
        shutil.rmtree(interrupted, ignore_errors=True)
    log_file = folder.parent / f"{ivy_file.stem}.log"
    # Ivy's own cache is not kept: it would double the size, and an interrupted one cannot be trusted.
    workspace = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        jars = workspace / "jars"
        returncode = _run_ivy(java_command, ivy_file, workspace / "ivy-cache", jars, log_file)
        if returncode != 0 or not any(jars.glob("*.jar")):
            raise SetupError(
                f"cannot fetch the {ivy_file.stem} jars: {_reason(log_file)} - check that this machine reaches Maven "
                "Central (a proxy goes into JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=... -Dhttps.proxyPort=...) and run "
                f"again; full log: {log_file}"
            )
        jars.rename(folder)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


def _run_ivy(java_command: Path, ivy_file: Path, ivy_cache: Path, jars: Path, log_file: Path) -> int | None:
    command = [
        str(java_command),
        f"-Dsun.net.client.defaultConnectTimeout={_CONNECT_TIMEOUT_MS}",
        f"-Dsun.net.client.defaultReadTimeout={_READ_TIMEOUT_MS}",
        *("-jar", str(_ivy_jar())),
        "-m2compatible",
        *("-cache", str(ivy_cache)),
        *("-ivy", str(ivy_file)),
        *("-retrieve", f"{jars}/[artifact]-[revision].[ext]"),
    ]
    with log_file.open("wb") as output:
        ivy = Child(command, output)
        try:
            ivy.wait()
        except BaseException:
            ivy.kill()
            ivy.wait()
            raise
    return ivy.returncode


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")  # its import would take a second and is not needed
    found = sorted(Path(pyspark.origin).parent.glob("jars/ivy-*.jar")) if pyspark and pyspark.origin else []
    if not found:
        raise SetupError("PySpark brings no Ivy to fetch jars with: reinstall it with `pip install pyspark==4.2.0`")
    return found[-1]


def _reason(log_file: Path) -> str:
    """The first problem in Ivy's summary; the others repeat it for every other module."""
    lines = [line.strip() for line in log_file.read_text(errors="replace").splitlines() if line.strip()]
    for heading in (":::: ERRORS", ":::: WARNINGS"):
        if heading in lines[:-1]:
            return lines[lines.index(heading) + 1]
    return lines[-1] if lines else "Ivy wrote nothing"
