"""Finds the line of each setting in a TOML file, because the standard parser keeps no positions.

The scanner reads only text that `tomllib` has accepted. So it checks nothing, and knows just enough of the grammar to
tell keys from values: strings, brackets and comments.
"""

import re
import tomllib
from collections.abc import Mapping

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACES = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_QUOTED_KEY = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'[^']*'")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}' + r"|'''.*?'{3,5}" + r'|"(?:[^"\\]|\\.)*"' + r"|'[^']*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\r\n]+")


def locate(text: str) -> dict[str, int]:
    """The line where each setting and table comes first, by its dotted name."""
    return _Scanner(text).scan()


def line_of(lines: Mapping[str, int], setting: str) -> int | None:
    """The line of a setting; of a missing setting, the line of the nearest table that should hold it."""
    while setting:
        if setting in lines:
            return lines[setting]
        setting = setting.rpartition(".")[0]
    return None


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._lines: dict[str, int] = {}
        self._line, self._counted = 1, 0

    def scan(self) -> dict[str, int]:
        table: tuple[str, ...] = ()
        while self._skip(_BLANK) < len(self._text):
            if self._text[self._position] == "[":
                brackets = 2 if self._text.startswith("[[", self._position) else 1
                self._position += brackets
                table = self._key(())
                self._position += brackets
            else:
                self._key_and_value(table)
        return self._lines

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._position)
        self._position = match.end() if match else self._position
        return self._position

    def _key_and_value(self, table: tuple[str, ...]) -> None:
        name = self._key(table)
        self._position += len("=")
        self._value(name)

    def _key(self, table: tuple[str, ...]) -> tuple[str, ...]:
        self._line += self._text.count("\n", self._counted, self._position)
        self._counted = self._position
        line = self._line
        name = table
        while True:
            start = self._skip(_SPACES)
            if self._text[start] in "\"'":
                written = self._text[start : self._skip(_QUOTED_KEY)]
                part = str(tomllib.loads(f"key = {written}")["key"])
            else:
                part = self._text[start : self._skip(_BARE_KEY)]
            name = (*name, part)
            self._lines.setdefault(".".join(name), line)
            if self._text[self._skip(_SPACES)] != ".":
                return name
            self._position += len(".")

    def _value(self, name: tuple[str, ...]) -> None:
        opening = self._text[self._skip(_SPACES)]
        if opening in "\"'":
            self._skip(_STRING)
        elif opening in "[{":
            self._position += 1
            while self._text[self._skip(_BLANK)] not in "]}":
                if opening == "{":
                    self._key_and_value(name)
                else:
                    self._value(name)
                self._skip(_BLANK)
                if self._text[self._position] == ",":
                    self._position += 1
            self._position += 1
        else:
            self._skip(_SCALAR)
