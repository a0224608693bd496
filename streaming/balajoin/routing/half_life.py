"""Decides when counts halve: streams never end, and a key that was hot yesterday should not count for ever."""

from typing import Any

from balajoin.core.codec import integer_or_none


class HalfLife:
    def __init__(self, half_life_ms: int, state: dict[str, Any] | None = None) -> None:
        self._half_life_ms = half_life_ms
        self._since_ms: int | None = None if state is None else integer_or_none(state["since_ms"])

    def halvings(self, now_ms: int) -> int:
        """How many whole half-lives have passed since those of earlier calls. A clock set back starts anew."""
        if self._since_ms is None or now_ms < self._since_ms:
            self._since_ms = now_ms
        passed = (now_ms - self._since_ms) // self._half_life_ms
        self._since_ms += passed * self._half_life_ms
        return passed

    def state(self) -> dict[str, Any]:
        return {"since_ms": self._since_ms}
