"""Which commands a bash script starts: a small reader of bash's grammar.

It knows words, quotes, expansions, here-documents, case, [[ ]] and arithmetic well enough for
scripts written by people, and nothing of aliases or eval. A word that is put together at run time
("$tool") is no name it could tell.
"""

from __future__ import annotations

import re
from typing import NamedTuple

OPENERS = {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "time", "coproc"}
CLOSERS = {"fi", "done", "}", "esac"}
# The word after these (and after their options) is a command as well.
WRAPPERS = {"builtin", "command", "env", "exec", "nice", "nohup", "setsid", "setpriv", "stdbuf"}
ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[[^]]*\])?\+?=")
END_OF_TEST = re.compile(r"\s\]\](?=[\s;&|)]|$)")
END_OF_WORD = " \t\n;&|()<>"


class Command(NamedTuple):
    """A command's name and the line it stands on."""

    line: int
    name: str


class Reader:
    """Reads a script once, from its beginning to its end."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.commands: list[Command] = []
        self.functions: set[str] = set()
        self.documents: list[tuple[str, bool]] = []  # delimiters of here-documents yet to come

    def rest(self, *starts: str) -> bool:
        return self.text.startswith(starts, self.at)

    def done(self) -> bool:
        return self.at >= len(self.text)

    def blanks(self, chars: str = " \t") -> None:
        while not self.done() and (self.text[self.at] in chars or self.rest("\\\n")):
            self.at += 2 if self.rest("\\\n") else 1

    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    # -- words

    def until(self, closing: str) -> None:
        """Skip what may hold quotes and expansions, up to and with ``closing``."""
        while not self.done():
            if self.rest(closing):
                self.at += len(closing)
                return
            self.piece(quoted=closing == '"', nested=closing in {")", "))"})

    def piece(self, quoted: bool = False, nested: bool = False) -> str:
        """Skip one character, or one quoted part or expansion; return it when it is literal."""
        pairs = {'"': '"', "${": "}", "$((": "))"}
        if self.rest("\\"):
            self.at += 2
            return ""
        for opening in ("$((", "${", '"'):
            if self.rest(opening) and not (quoted and opening == '"'):
                self.at += len(opening)
                self.until(pairs[opening])
                return "\0"
        if self.rest("$("):
            self.at += 2
            self.script(")")
            return "\0"
        if self.rest("`"):
            self.at += 1
            self.script("`")
            return "\0"
        if not quoted and self.rest("$'"):
            self.at = re.compile(r"\$'(\\.|[^'\\])*'?", re.DOTALL).match(self.text, self.at).end()
            return "\0"
        if not quoted and self.rest("'"):
            end = self.text.find("'", self.at + 1)
            self.at = len(self.text) if end < 0 else end + 1
            return "\0"
        if nested and self.rest("("):
            self.at += 1
            self.until(")")
            return "\0"
        self.at += 1
        char = self.text[self.at - 1]
        return "\0" if char == "$" else char

    def word(self) -> str:
        """Read a word; what is quoted or expanded in it is a NUL in the answer."""
        found = ""
        while not self.done() and self.text[self.at] not in END_OF_WORD:
            found += self.piece()
            # name=(a list of words) and the patterns @(a|b)
            if self.rest("(") and (ASSIGNMENT.fullmatch(found) or found[-1:] in set("@?*+!")):
                self.at += 1
                self.until(")")
                found += "\0"
        return found

    # -- commands

    def script(self, end: str = "") -> None:  # noqa: C901 (a table of what may come next)
        """Read commands up to and with ``end`` (or the end of the text)."""
        expecting, target, cases = True, False, 0
        while not self.done():
            self.blanks()
            if end and self.rest(end):
                self.at += len(end)
                return
            if self.rest("\n"):
                self.at += 1
                self.here_documents()
                expecting = True
            elif self.rest("#"):
                self.at = (self.text + "\n").find("\n", self.at)
            elif cases and self.rest(";;", ";&"):
                self.at += 2
                expecting, cases = True, cases - self.pattern()
            elif self.rest("((") and expecting:
                self.at += 2
                self.until("))")
            elif self.rest("("):
                self.at += 1
                self.script(")")
            elif self.rest("<", ">"):
                target = self.redirection()
            elif self.rest(";", "&", "|", ")"):
                self.at += 1
                expecting = True
            elif not self.done():
                start, word = self.line(), self.word()
                if target or not expecting:
                    # In "2>file" the number is a word of its own to us; it does no harm.
                    target = False
                elif word == "case":
                    cases += self.case()
                elif word == "esac":
                    cases, expecting = cases - 1, False
                else:
                    expecting = self.first(word, start)

    def first(self, word: str, line: int) -> bool:
        """Deal with a word in the place of a command; whether the next one is in that place too."""
        if word in OPENERS or ASSIGNMENT.match(word) or word.isdigit():
            return True
        if word in CLOSERS or "\0" in word or not word:
            return False
        if word == "[[":
            while not self.done() and not END_OF_TEST.match(self.text, self.at):
                self.piece()
            self.at += 3
            return False
        if word in {"for", "select"}:
            self.blanks()
            if self.rest("(("):
                self.at += 2
                self.until("))")
            return False
        if word == "function":
            self.blanks()
            self.functions.add(self.word())
            return True
        definition = re.compile(r"[ \t]*\([ \t]*\)").match(self.text, self.at)
        if definition:
            self.functions.add(word)
            self.at = definition.end()
            return True
        if word.startswith("-"):
            return True  # an option of a wrapper
        self.commands.append(Command(line, word))
        return word in WRAPPERS

    def case(self) -> int:
        """Read ``case WORD in`` and the first pattern; 0 when the case ends at once."""
        self.blanks()
        self.word()
        self.blanks(" \t\n")
        self.word()
        return 1 - self.pattern()

    def pattern(self) -> int:
        """Skip a pattern of a case and its parenthesis; 1 when there is ``esac`` instead."""
        while True:
            self.blanks(" \t\n")
            if not self.rest("#"):
                break
            self.at = (self.text + "\n").find("\n", self.at)
        if self.rest("esac"):
            self.at += 4
            return 1
        self.at += self.rest("(")
        self.until(")")
        return 0

    def redirection(self) -> bool:
        """Read a redirection's sign; whether a word follows that is its file."""
        if self.rest("<(", ">("):
            self.at += 2
            self.script(")")
            return False
        document = re.compile(r"<<(-?)[ \t]*(['\"\\]?)(\w+)\2").match(self.text, self.at)
        if document and not self.rest("<<<"):
            self.documents.append((document[3], bool(document[1])))
            self.at = document.end()
            return False
        self.at = re.compile(r"[<>]+[&|]?").match(self.text, self.at).end()
        self.blanks()
        return True

    def here_documents(self) -> None:
        for delimiter, tabs in self.documents:
            while not self.done():
                end = (self.text + "\n").find("\n", self.at)
                line, self.at = self.text[self.at : end], min(end + 1, len(self.text))
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
        self.documents.clear()


def commands(text: str) -> list[Command]:
    """Return the commands that the script starts, without the functions it defines."""
    reader = Reader(text)
    reader.script()
    return [c for c in reader.commands if c.name not in reader.functions]
