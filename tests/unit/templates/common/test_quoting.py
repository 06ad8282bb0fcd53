"""Words that a real bash reads back as what they were made of."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from templates.common.quoting import quote, quote_all, quote_below

# Whatever an argument can hold: everything but NUL, and surrogates that are no text.
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def read_by_bash(line: str) -> list[str]:
    script = f'VAR="of  the script"; set -- {line}\n[ $# -eq 0 ] || printf "%s\\0" "$@"'
    done = subprocess.run(["bash"], input=script.encode(), capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout.decode().split("\0")[:-1]


@given(st.lists(TEXTS))
def test_words_are_read_back_as_they_were(texts: Sequence[str]) -> None:
    assert read_by_bash(quote_all(texts)) == list(texts)


@given(TEXTS)
def test_a_quoted_text_is_one_word(text: str) -> None:
    assert read_by_bash(f"{quote(text)} x{quote(text)}") == [text, f"x{text}"]


@given(TEXTS)
def test_a_path_lies_below_the_value_of_a_variable(path: str) -> None:
    assert read_by_bash(quote_below("$VAR", path)) == [f"of  the script/{path}"]


def test_plain_words_are_left_readable() -> None:
    for text in ("a", "/etc/x-y_z.1:2@3%4+5", "alice@example.org"):
        assert quote(text) == text
    for text in ("", " ", "~", "a=b", "a,b", "{a}", "é", "*", "$x", "#", "!", "a\n"):
        assert quote(text) == f"'{text}'"
