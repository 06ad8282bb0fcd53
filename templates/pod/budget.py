"""How much one pod may have, and what is left of it while the pod is read and translated.

A pod can make much of little: a reference stands for a long value, a volume for a ConfigMap of many
files. So what is made is taken from the budget while it is made, and what is read is counted for
each container. docs/limits.md has the table.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NoReturn

from templates.common.errors import PodRejected
from templates.pod.model import Container

# The kernel takes no single argument or variable longer than this, less what follows it (a NUL).
LONGEST_ARGUMENT = 131072 - 1
# Apptainer passes a variable on with a prefix of up to 16 bytes before its name.
LONGEST_VARIABLE = LONGEST_ARGUMENT - 16
LONGEST_ENVIRONMENT = 1536 * 1024  # all arguments and variables; the kernel's limit is about 2 MiB

LONGEST_NAME = 1024  # of an image, or a variable; names are kept in caches
MOST_VALUES = 250_000  # of the JSON of a request, in which the pod is one of them

LONGEST_MAP = 512 * 1024  # all labels, or all annotations, as a variable or a file

# What a budget has, by the name of its attribute, as messages and docs/limits.md call it.
WORDS = {
    "containers": "containers",
    "variables": "variables",
    "arguments": "words of commands and arguments",
    "text": "characters of variables and arguments",
    "references": "characters that references stand for",
    "volumes": "volumes",
    "mounts": "mounts of volumes",
    "files": "files in volumes",
    "file_bytes": "bytes of files in volumes",
    "hosts": "names in hostAliases",
    "pull_secrets": "imagePullSecrets",
    "resources": "requests and limits",
}


class Budget:
    """What is left of all that one pod may have.

    Each pod comes by here: what it has many of is subtracted without a call for each amount.
    """

    containers = 500
    variables = 10_000
    arguments = 20_000
    text = LONGEST_ENVIRONMENT
    references = LONGEST_ENVIRONMENT
    volumes = 1_000
    mounts = 1_000
    files = 10_000
    file_bytes = 64 * 1024**2
    hosts = 1_000
    pull_secrets = 100
    resources = 5_000

    def take(self, what: str, amount: int, field: str) -> None:
        """Take so much; refuse the pod, at the field that needs it, if there is less."""
        left = getattr(self, what) - amount
        setattr(self, what, left)
        if left < 0:
            self._refuse(field)

    def take_words(self, words: Collection[str], field: str) -> None:
        """Take words that are handed to a program, or to the runtime."""
        self.take("arguments", len(words), field)
        self.take("text", len("".join(words)), field)

    def take_files(self, contents: Collection[bytes], field: str) -> None:
        """Take the files of a volume."""
        self.files -= len(contents)
        self.file_bytes -= sum(map(len, contents))
        if self.files < 0 or self.file_bytes < 0:
            self._refuse(field)

    def take_container(self, container: Container, text: int, field: str) -> None:
        """Take the parts of a container that are not expanded, and this many characters."""
        self.variables -= len(container.env)
        self.arguments -= len(container.command) + len(container.args)
        self.text -= text
        self.mounts -= len(container.mounts)
        self.resources -= len(container.requests) + len(container.limits)
        if self.variables < 0 or self.arguments < 0 or self.text < 0:
            self._refuse(field)
        if self.mounts < 0 or self.resources < 0:
            self._refuse(field)

    def _refuse(self, field: str) -> NoReturn:
        what, left = next((what, left) for what, left in vars(self).items() if left < 0)
        most = getattr(Budget, what)
        reason = f"{most - left} {WORDS[what]} are more than the {most} that a pod may have"
        raise PodRejected(field, reason)
