"""Settings that stored rows depend on: a checkpoint made with others is refused."""

from typing import TYPE_CHECKING, Any

from balajoin.errors import StateError

if TYPE_CHECKING:
    from balajoin.settings import JoinSettings, Stream


def pins(probe: "Stream", build: "Stream", settings: "JoinSettings") -> dict[str, Any]:
    return {
        "join.type": settings.type,
        "join.nodes": settings.nodes,
        "probe.topic": probe.topic,
        "build.topic": build.topic,
        "probe.key": probe.key,
        "build.key": build.key,
    }


def refuse_others(written: dict[str, Any], given: dict[str, Any]) -> None:
    for setting, value in given.items():
        if written.get(setting) != value:
            raise StateError(
                f"{setting} is {value!r}, but the checkpoint was made with {written.get(setting)!r}: stored rows are "
                f"placed by it. Set it back, or use a new checkpoint location"
            )
