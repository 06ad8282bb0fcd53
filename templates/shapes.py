"""Shapes: what the pods of one workload have in common is worked out once, not for each of them.

Of the thousand pods of a Job each has its own metadata, host name, commands, arguments, variables,
and contents of what comes along. The rest of a pod's spec is its *shape*, known by its JSON without
what differs (``outline_of``). The API server gives each pod's token volume a name of its own, too
(``kube-api-access-x7k2p``): a shape has a gap, ``GAP``, where that name stands.

The first two pods of a shape are read field by field (``spec.py``). What the second has in common
with others is then kept, as a pod with gaps; of the next ones only the gaps are read, checked and
filled (``shaped.py``). What follows from a shape and a site alone is kept along with the shape
(``Shape.once``): what the job asks for (``job.py``), how its volumes become files
(``shaped_volumes.py``), the bash of its containers (``script.py``).

So that nobody can tell the difference, but for the time:

- The key of a shape is all of the spec that is not read again, to the byte; what is kept was made
  from nothing else. A pod whose gaps and shape depend on each other has no shape (``may_share``).
- A pod that is refused leaves nothing, and each refusal comes from looking at the pod itself.
- Nothing that names a pod is kept, and nothing of its labels, annotations, commands, variables and
  contents, which may be secret; but for the annotation that says where images are.
- Entries and bytes are bounded; the oldest shape goes first, with all that was kept along with it.
- What is kept never changes. Two threads may both make the same: then one of the two is kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from templates.build_config import BuildConfig
from templates.json_text import json_key
from templates.names import is_label
from templates.pod import Pod
from templates.wellknown import LOCAL_CONTAINERS, LOCAL_INIT_CONTAINERS, TOKEN_VOLUME_PREFIX

GAP = "\0"  # stands for the token volume's name: no valid text of a pod holds a NUL

MOST_SHAPES = 512
MOST_SEEN = 4096  # hashes of shapes that one pod has had so far
MOST_BYTES = 1024 * 1024  # of the keys of all shapes; what is kept of each grows with its key
LARGEST_KEY = 16 * 1024
PATIENCE, SELDOM = 64, 4  # after so many pods without a known shape, look at each fourth only
MOST_DERIVED = 12  # for each shape: three for each site that its pods go to

_TOKEN_NAME_LENGTH = len(TOKEN_VOLUME_PREFIX) + 5
_LISTS = ("initContainers", "containers")
_OWN_OF_A_POD = ("hostname", "ephemeralContainers")  # the latter are never run, nor looked at
# A container with one of these has further commands, or ones that decide about its bash.
_TIED = frozenset(("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"))

_Made = TypeVar("_Made")


class Shape:
    """A pod with gaps, and what else follows from it."""

    __slots__ = ("_derived", "pod")

    def __init__(self, pod: Pod) -> None:
        self.pod = pod
        self._derived: dict[object, tuple[BuildConfig, Any]] = {}

    def once(self, what: Hashable, config: BuildConfig, make: Callable[[], _Made]) -> _Made:
        """What ``make`` makes of nothing but this shape, the site's configuration, and ``what``."""
        key = id(config), what
        found = self._derived.get(key)
        if found is None:
            found = config, make()  # keeps it alive: no other one gets its identity
            if len(self._derived) >= MOST_DERIVED:
                self._derived.clear()
            self._derived[key] = found
        made: _Made = found[1]
        return made


class ShapedPod(Pod):
    """A pod that knows its shape; a pod that is made of it by ``_replace`` has none."""

    shape: Optional[Shape] = None
    token_volume: str = ""  # its name, where the shape has a gap; empty: there is none


def once(pod: Pod, what: Hashable, config: BuildConfig, make: Callable[[], _Made]) -> _Made:
    """What ``make`` makes of a pod, or has made of another one of its shape."""
    shape = pod.shape if type(pod) is ShapedPod else None
    return make() if shape is None else shape.once(what, config, make)


def has_shape(pod: Pod) -> bool:
    """Whether the shape of a pod is known."""
    return type(pod) is ShapedPod and pod.shape is not None


def token_volume(pod: Pod) -> str:
    """The volume with a gap for its name in what is kept; empty: there is none."""
    return pod.token_volume if type(pod) is ShapedPod else ""


class Outline(NamedTuple):
    """What a spec shares with those of other pods."""

    key: bytes
    token_volume: str


def outline_of(spec: Mapping[str, Any]) -> Optional[Outline]:
    """What a spec shares with others; None when it shares nothing that could be found.

    The gaps are put into the bytes, which is quickest; ``may_share`` sees to it that they are where
    they should be, which holds for all specs with the same key then.
    """
    shared = {**spec}
    for key in _OWN_OF_A_POD:
        shared.pop(key, None)
    try:
        token = _token_volume(spec["volumes"]) if "volumes" in spec else ""
        for key in _LISTS:
            if key in spec:
                shared[key] = [_shared_of(container) for container in spec[key]]
    except (AttributeError, KeyError, TypeError):
        return None  # malformed; where, is said by those who read it
    found = json_key(shared)
    if found is None or len(found) > LARGEST_KEY:
        return None
    if token:
        found = found.replace(b'"name":"%b"' % token.encode(), b'"name":"%b"' % GAP.encode())
    return Outline(found, token)


def _token_volume(volumes: list[dict[str, Any]]) -> str:
    """The name of the one volume whose name the API server has made up."""
    found = [v for v in volumes if v["name"].startswith(TOKEN_VOLUME_PREFIX)]
    if len(found) != 1 or type(found[0].get("projected")) is not dict:
        return ""
    name: str = found[0]["name"]
    return name if len(name) == _TOKEN_NAME_LENGTH and is_label(name) else ""


def _shared_of(container: dict[str, Any]) -> dict[str, Any]:
    shared = container.copy()
    shared.pop("command", None)
    shared.pop("args", None)
    shared.pop("env", None)
    return shared


def runs_whole(annotations: Mapping[str, str]) -> bool:
    """Whether all containers of the spec are the job's: which others are, is not in the spec."""
    return LOCAL_CONTAINERS not in annotations and LOCAL_INIT_CONTAINERS not in annotations


def may_share(spec: Mapping[str, Any], annotations: Mapping[str, str], outline: Outline) -> bool:
    """Whether what a checked pod has in common with others depends on nothing that is its own."""
    if not runs_whole(annotations):
        return False
    named = 1  # times that the token's volume is named: by itself, and by mounts
    for container in [raw for key in _LISTS for raw in spec.get(key) or ()]:
        mounts = container.get("volumeMounts") or ()
        if not _TIED.isdisjoint(container) or any("subPathExpr" in mount for mount in mounts):
            return False
        named += [mount["name"] for mount in mounts].count(outline.token_volume)
    return outline.token_volume == "" or outline.key.count(GAP.encode()) == named


class Shapes:
    """The shapes of late, by their keys; each is kept when a second pod of it comes.

    There is no lock: each step is one step to all threads, and two that do the same do no harm.
    """

    def __init__(self) -> None:
        self._shapes: dict[bytes, Shape] = {}
        self._seen: set[int] = set()  # hashes of the keys that came once
        self._in_vain = 0  # pods since the last one of a known shape

    def __len__(self) -> int:
        return len(self._shapes)

    def is_worth_a_look(self) -> bool:
        """Whether to look for the next pod's shape: seldom while each pod is like no other."""
        self._in_vain += 1
        return self._in_vain < PATIENCE or self._in_vain % SELDOM == 0

    def find(self, key: bytes) -> Optional[Shape]:
        """The shape of that key, if pods of it came lately."""
        shape = self._shapes.get(key)
        if shape is not None:
            self._in_vain = 0
        return shape

    def is_new(self, key: bytes) -> bool:
        """Whether this is the first pod of a shape: it may well stay the only one."""
        mark = hash(key)
        if mark in self._seen:
            return False
        if len(self._seen) >= MOST_SEEN:
            self._seen.clear()
        self._seen.add(mark)
        return True

    def keep(self, key: bytes, shape: Shape) -> None:
        """Keep a shape, and let the oldest go where there are too many."""
        self._shapes.setdefault(key, shape)
        keys = list(self._shapes)
        count, size = len(keys), sum(map(len, keys))
        for oldest in keys:
            if count <= MOST_SHAPES and size <= MOST_BYTES:
                break
            self._shapes.pop(oldest, None)
            count, size = count - 1, size - len(oldest)
