"""The settings that stored rows depend on. A checkpoint made with other values is refused.

An expression that takes something from the environment or from a file (`${…}`) may hold a secret. The checkpoint keeps
only a salted hash of such an expression, and no error shows the expression. Nodes compare it in every batch. If the
checkpoint holds the driver's own salt and hash, they compare these as text. After a restart the salts differ, and each
process computes the hash with the checkpoint's salt once.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self

from balajoin.errors import StateError

HIDDEN = "***"
# A wider interval would look for rows that have expired. Checkpoints of older versions do not hold the interval.
_INTERVAL = ("join.before", "join.after")


@dataclass(frozen=True)
class HiddenPin:
    expression: str = field(repr=False)
    written: Mapping[str, str]

    @classmethod
    def of(cls, expression: str) -> Self:
        salt = secrets.token_hex(16)
        return cls(expression, {"salt": salt, "scrypt": _digest(expression, salt)})


def refuse_others(written: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    for setting, value in given.items():
        was = written.get(setting, value if setting in _INTERVAL else None)
        if _fits(was, value):
            continue
        if isinstance(value, HiddenPin) or _is_hidden(was):
            raise StateError(
                f"{setting} is another expression than the checkpoint was made with: stored rows are placed by it. Set "
                "it back, and the variables and files that it takes a part from, or use a new checkpoint location"
            )
        why = "rows are stored for only as long as it asks" if setting in _INTERVAL else "stored rows are placed by it"
        raise StateError(
            f"{setting} is {value!r}, but the checkpoint was made with {was!r}: {why}. Set it back, or use a new "
            "checkpoint location"
        )


def agreed(written: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """The pins that the next state holds. A hash stays as it is; the plain text of an older balajoin becomes a hash."""
    if written is not None:
        refuse_others(written, given)
    before = written or {}
    return {setting: _to_write(before.get(setting), value) for setting, value in given.items()}


def shown(written: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The pins for people. A setting that `given` hides is hidden even if an older balajoin wrote it as plain text."""
    hidden = {setting for setting, value in (given or {}).items() if isinstance(value, HiddenPin)}
    return {setting: HIDDEN if setting in hidden or _is_hidden(value) else value for setting, value in written.items()}


def _to_write(written: Any, given: Any) -> Any:
    if not isinstance(given, HiddenPin):
        return given
    return written if _is_hidden(written) else dict(given.written)


def _is_hidden(written: Any) -> bool:
    return isinstance(written, dict)


def _fits(written: Any, given: Any) -> bool:
    value = given
    if isinstance(given, HiddenPin):
        if written == given.written:
            return True
        value = given.expression
    match written:
        case {"salt": str(salt), "scrypt": str(digest)} if isinstance(value, str):
            return hmac.compare_digest(_digest(value, salt), digest)
    return bool(written == value)


@lru_cache(maxsize=64)
def _digest(expression: str, salt: str) -> str:
    """Slow on purpose, because secrets may be short: about 50 ms and 16 MiB for each guess."""
    return hashlib.scrypt(expression.encode(), salt=salt.encode(), n=1 << 14, r=8, p=1, dklen=32).hex()
