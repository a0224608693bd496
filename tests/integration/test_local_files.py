"""The file system of a local session."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from balajoin.checkpoints.files import Folder


def test_local_files_are_made_without_a_process(spark: SparkSession, tmp_path: Path) -> None:
    """A process would be a child of the JVM, and the kernel would add its page faults to the JVM's count."""
    jvm: Any = spark._jvm
    stat = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/stat")

    def faults_of_ended_children() -> str:
        return stat.read_text().rpartition(")")[2].split()[8]

    before = faults_of_ended_children()
    folder = Folder(spark, str(tmp_path / "new"))
    for number in range(10):
        folder.write(str(number), b"x")
    assert sorted(folder.numbers("")) == list(range(10))
    assert (tmp_path / "new" / "3").stat().st_mode & 0o777 == 0o644
    assert faults_of_ended_children() == before
