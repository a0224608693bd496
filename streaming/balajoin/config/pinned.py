"""The settings that a checkpoint pins: those that decide which rows are stored, where and for how long."""

from typing import Any

from balajoin.config import durations
from balajoin.config.models import JoinSettings, Stream
from balajoin.core.pins import HiddenPin


def pins(probe: Stream, build: Stream, settings: JoinSettings) -> dict[str, Any]:
    return {
        "join.type": settings.type,
        "join.nodes": settings.nodes,
        "join.before": durations.format_ms(settings.before_ms),
        "join.after": durations.format_ms(settings.after_ms),
        "probe.topic": probe.topic,
        "build.topic": build.topic,
        "probe.key": _pinned_key(probe),
        "build.key": _pinned_key(build),
    }


def _pinned_key(stream: Stream) -> str | HiddenPin:
    return HiddenPin.of(stream.key) if stream.is_substituted("key") else stream.key
