"""Finds programs from Debian packages that some tests run. `make tools` installs them, and CI always has them."""

import os
import shutil

import pytest


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        missing = f"{name} is not installed: run `make tools` as root (on Debian or Ubuntu)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return found
