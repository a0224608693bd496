"""No data from a topic or a checkpoint can run code."""

import ast
import pickle
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import balajoin
from balajoin.compute.batch import Inputs
from balajoin.compute.guest import Guest
from balajoin.core import codec
from balajoin.core.blocks import ROWS, decode
from balajoin.core.messages import Part
from balajoin.errors import BlockError, StateError
from hostile import EMPTY_ROW, NODES, NOW, ROWS_OF_0, STAMP, sealed, stream

PACKAGE = Path(balajoin.__file__).parent
_RUNS_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "yaml", "ctypes", "runpy", "code"}
_CALL_THE_C_LIBRARY = {Path("spark/_die_with_parent.py"), Path("spark/memory.py")}  # and read no data
_BUILT_IN = {"eval", "exec", "compile", "__import__"}


def test_the_package_has_nothing_that_could_run_what_it_reads():
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
            where = f"{path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
            if path.relative_to(PACKAGE) not in _CALL_THE_C_LIBRARY:
                assert not {module.partition(".")[0] for module in modules} & _RUNS_CODE, where
            if isinstance(node, ast.Call):
                assert not (isinstance(node.func, ast.Name) and node.func.id in _BUILT_IN), where
                assert not any(keyword.arg == "allow_pickle" for keyword in node.keywords), where
                named = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                assert named not in {"read_pickle", "to_pickle", "deserialize", "loads_pickle"}, where
                assert not (named == "load" and ast.unparse(node.func) in {"np.load", "numpy.load"}), where


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_a_pickle_stays_shut_wherever_it_is_put(tmp_path):
    fuse = tmp_path / "went-off"
    pickled = pickle.dumps(Bomb(fuse))
    extension = ROWS.set(4, pa.field("key", pa.binary(), metadata={
        "ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": pickled
    }))  # fmt: skip
    pandas = ROWS.with_metadata({"pandas": pickled, "ARROW:extension:metadata": pickled})
    for schema in (extension, pandas):
        rows = pa.Table.from_arrays([column.combine_chunks() for column in ROWS_OF_0.columns], schema=schema)
        try:
            decode(sealed(stream(rows))).to_pandas()
        except BlockError:
            continue
    for state in (pickled, b"bala" + zlib.crc32(pickled).to_bytes(4, "big") + pickled):
        with pytest.raises(StateError):
            codec.decode("node", 1, state)
    text = pickled.decode("latin-1")
    rows = [
        SimpleNamespace(**{**EMPTY_ROW, "section": kind, "note": text, "block": pickled})
        for kind in ("signal", "replica")
    ]
    assert Inputs.read(NOW, rows).foreign == 2
    assert Guest(1, NODES).accept([Part(STAMP, 0, 1, "a", 0, 1, (), (), pickled)], NOW.batch) == []
    assert not fuse.exists()
    pickle.loads(pickled)
    assert fuse.exists(), "unpickling the bomb should run its code"
