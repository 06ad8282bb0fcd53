"""Quote words of bash that the translation puts together; the templates quote all else."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NewType

Word = NewType("Word", str)
"""Text that is one word for bash, quoted where it has to be."""

_is_plain = re.compile(r"[A-Za-z0-9@%_+:./-]+").fullmatch
_A_QUOTE = "'\"'\"'"  # ends the quotes, adds a quote in quotes of the other kind, begins them again


def quote(text: str) -> Word:
    """Return a word that means just this text."""
    return Word(text if _is_plain(text) else _in_quotes(text))


def quote_below(variable: str, path: str) -> Word:
    """Return a path below the directory in a variable of the script: ``"$DIR"/volumes/cfg``."""
    return Word(f'"{variable}"/{quote(path)}')


def quote_all(texts: Collection[str], separator: str = " ") -> str:
    """Return the texts as words, all in quotes: quicker than to find out which need them."""
    if not texts:
        return ""
    joined = f"'{separator}'".join(texts)
    if joined.count("'") == 2 * (len(texts) - 1):  # all of the quotes are ours
        return f"'{joined}'"
    return separator.join([_in_quotes(text) for text in texts])


def _in_quotes(text: str) -> str:
    return "'" + text.replace("'", _A_QUOTE) + "'"
