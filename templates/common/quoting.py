"""Words of bash that the translation puts together; all else is quoted by the templates."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NewType

Word = NewType("Word", str)
"""Text that is one word for bash, quoted where it has to be."""

_is_plain = re.compile(r"[A-Za-z0-9@%_+:./-]+").fullmatch
_A_QUOTE = "'\"'\"'"  # ends the quotes, adds a quote in quotes of the other kind, begins them again


def quote(text: str) -> Word:
    """A word that means just this text."""
    return Word(text if _is_plain(text) else _in_quotes(text))


def inside(variable: str, path: str) -> Word:
    """A path below the directory that a variable of the script holds: ``"$DIR"/volumes/cfg``."""
    return Word(f'"{variable}"/{quote(path)}')


def words(texts: Collection[str], separator: str = " ") -> str:
    """Several words in a row, all in quotes: that is quicker than to ask which of them need any."""
    if not texts:
        return ""
    joined = f"'{separator}'".join(texts)
    if joined.count("'") == 2 * (len(texts) - 1):  # all of them are ours
        return f"'{joined}'"
    return separator.join([_in_quotes(text) for text in texts])


def _in_quotes(text: str) -> str:
    return "'" + text.replace("'", _A_QUOTE) + "'"
