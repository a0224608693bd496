"""Imports point one way: a package imports only lower ones, and the pure logic imports no runtime."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "streaming" / "balajoin"

# From the lowest to the highest. Packages of one line may import each other.
LAYERS = (
    {"errors", "core"},
    {"routing", "compute"},
    {"config"},
    {"kafka", "spark", "control", "edge", "sinks", "checkpoints"},
    {"observe", "testing"},
    {"plan", "query"},
    {"service", "embedded"},
    {"demo"},
    {"cli"},
    {"__main__", "__init__"},
)
# Adapters between the pure logic and Spark. They are beside their logic, but belong to the fourth line.
ADAPTERS = {"compute/batch.py", "compute/processor.py", "routing/router.py"}
PURE = ("core", "routing", "compute")
RUNTIMES = {"pyspark", "confluent_kafka", "kafka", "pydantic", "prometheus_client", "rich"}
KAFKA_CLIENTS = {"Producer", "SerializingProducer", "Consumer", "DeserializingConsumer", "AdminClient"}


def level(part: str) -> int:
    return next(at for at, parts in enumerate(LAYERS) if part in parts)


def package_of(module: str) -> str:
    return module.partition("/")[0].removesuffix(".py")


def is_pure(module: str) -> bool:
    return package_of(module) in PURE and module not in ADAPTERS


def modules() -> list[str]:
    return sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


def imported(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse((PACKAGE / module).read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "balajoin":
            yield from (f"balajoin.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("module", modules())
def test_a_module_imports_only_what_stands_below_it(module: str) -> None:
    own = level("edge" if module in ADAPTERS else package_of(module))
    used = {name.split(".")[1] for name in imported(module) if name.startswith("balajoin.")}
    known = {part for parts in LAYERS for part in parts}
    assert {part for part in used & known if level(part) > own} == set()


@pytest.mark.parametrize("module", [*filter(is_pure, modules())])
def test_pure_logic_imports_no_runtime(module: str) -> None:
    assert {name.partition(".")[0] for name in imported(module)} & RUNTIMES == set()


def test_pure_logic_never_reaches_its_adapters() -> None:
    adapters = {f"balajoin.{name.removesuffix('.py').replace('/', '.')}" for name in ADAPTERS}
    users = [
        name for name in modules() if name.startswith(PURE) and name not in ADAPTERS and adapters & {*imported(name)}
    ]
    assert users == []


def test_nothing_but_tests_uses_the_simulator() -> None:
    users = {
        package_of(name) for name in modules() if any(used.startswith("balajoin.testing") for used in imported(name))
    }
    assert users == {"testing"}


def test_every_package_has_its_place() -> None:
    assert {name.partition("/")[0].removesuffix(".py") for name in modules()} == {
        part for parts in LAYERS for part in parts
    }


def test_the_root_holds_the_public_face_only() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= 6


def called(module: str) -> set[str]:
    """The last names of all calls in a module: `Producer` for `Producer(…)` and `confluent_kafka.Producer(…)`."""
    calls = (node.func for node in ast.walk(ast.parse((PACKAGE / module).read_text())) if isinstance(node, ast.Call))
    return {name for call in calls if (name := getattr(call, "attr", getattr(call, "id", None)))}


def test_one_module_builds_kafka_clients() -> None:
    assert [module for module in modules() if called(module) & KAFKA_CLIENTS] == ["kafka/clients.py"]
