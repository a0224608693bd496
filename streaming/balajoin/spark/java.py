"""Find a Java that Spark 4 and Kafka 4 both accept."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from balajoin.errors import SetupError

MINIMUM_VERSION = 17
_ADVICE = f"install Java {MINIMUM_VERSION} or newer and put it on PATH, or point JAVA_HOME at it"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def require(environ: Mapping[str, str] = os.environ) -> Path:
    """The `java` of JAVA_HOME, else of PATH: the order in which Spark looks."""
    java = _locate(environ)
    version = _version_of(java)
    if version < MINIMUM_VERSION:
        raise SetupError(f"{java} is Java {version}, too old: {_ADVICE}")
    return java


def problem(environ: Mapping[str, str] = os.environ) -> str | None:
    """The message of the error that `require` would raise, for a Makefile, which cannot catch exceptions."""
    try:
        require(environ)
    except SetupError as error:
        return str(error)
    return None


def _locate(environ: Mapping[str, str]) -> Path:
    home = environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise SetupError(f"JAVA_HOME is {home}, which holds no bin/java: {_ADVICE}")
        return java
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise SetupError(f"no Java found: {_ADVICE}")
    return Path(found)


def _version_of(java: Path) -> int:
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SetupError(f"{java} does not run ({error}): {_ADVICE}") from error
    match = _VERSION.search(answer.stderr + answer.stdout)
    # macOS has a /usr/bin/java that runs and fails where no Java is installed.
    if answer.returncode != 0 or match is None:
        raise SetupError(f"{java} does not tell its version: {_ADVICE}")
    return int(match[1])
