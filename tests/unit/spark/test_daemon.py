"""The daemon imports PySpark from where it is compiled, but only the version that Spark itself brings."""

import zipfile
from pathlib import Path

import pyspark
import pytest

from balajoin.spark.daemon import prefer_compiled_pyspark

INSTALLED = Path(pyspark.__file__).parent


@pytest.fixture
def archive(tmp_path):
    def make(version):
        with zipfile.ZipFile(tmp_path / "pyspark.zip", "w") as packed:
            packed.writestr("pyspark/__init__.py", "")
            packed.writestr("pyspark/version.py", version)
        return str(tmp_path / "pyspark.zip")

    return make


def test_an_archive_of_the_installed_version_is_left_out(archive):
    path = ["", archive((INSTALLED / "version.py").read_bytes()), "elsewhere", str(INSTALLED.parent)]
    prefer_compiled_pyspark(path)
    assert path == ["", "elsewhere", str(INSTALLED.parent)]


def test_an_archive_of_another_version_stays(archive):
    path = [archive("__version__ = '0.1'"), str(INSTALLED.parent)]
    expected = [*path]
    prefer_compiled_pyspark(path)
    assert path == expected


def test_an_archive_stays_where_nothing_is_installed(archive, tmp_path):
    path = [archive((INSTALLED / "version.py").read_bytes()), str(tmp_path / "empty")]
    expected = [*path]
    prefer_compiled_pyspark(path)
    assert path == expected


def test_something_else_of_that_name_stays(tmp_path):
    (tmp_path / "pyspark.zip").mkdir()
    path = [str(tmp_path / "pyspark.zip"), str(INSTALLED.parent)]
    expected = [*path]
    prefer_compiled_pyspark(path)
    assert path == expected
