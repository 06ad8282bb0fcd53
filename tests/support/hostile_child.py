"""Translate hostile pods, each in a child process of its own; print what each took, as JSON lines.

Called with the runtime of the site, the size of the requests in bytes, and names of pods.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from templates.common.errors import InterlinkNatsError
from templates.pod.create_request import read_create_request
from templates.site.build_config import BuildConfig, HostPath
from templates.translation.build import build
from tests.support.hostile_pods import AT_THE_LIMIT, HOSTILE, with_spec

MIB = 1024 * 1024
CPU_S = 20  # ends what would not end


def site(runtime: str) -> BuildConfig:
    """A site that allows what it can."""
    config = BuildConfig()
    volumes = replace(config.volumes, host_paths=(HostPath(path="/data"),))
    allowed = ("*", "mpi-flags", "singularity-mounts", "singularity-options")
    rules = replace(config.rules, annotations=allowed)
    runtime_settings = replace(config.runtime, name=runtime)
    return replace(config, runtime=runtime_settings, volumes=volumes, rules=rules)


def peak() -> int:
    """The most memory that this process has had, in bytes."""
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def measure(body: bytes, config: BuildConfig) -> dict[str, Any]:
    Path("/proc/self/clear_refs").write_text("5")  # forgets what the peak was so far
    before, began = peak(), resource.getrusage(resource.RUSAGE_SELF)
    try:
        job = build(read_create_request(body), config)
        answer = f"job of {len(job.script)} characters and {len(job.files)} files"
    except InterlinkNatsError as error:
        answer = f"refused: {error}"
    ended = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = ended.ru_utime - began.ru_utime + ended.ru_stime - began.ru_stime
    return {"size": len(body), "answer": answer, "bytes": peak() - before, "cpu_s": cpu_s}


def say(**found: Any) -> None:
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()


def main(runtime: str, size: int, *names: str) -> None:
    config = site(runtime)
    build(read_create_request(with_spec()), config)
    for name in names:
        if os.fork():
            _, status = os.wait()
            if status:
                say(name=name, answer=f"died: {status}")
            continue
        body = {**HOSTILE, **AT_THE_LIMIT}[name](size)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
        resource.setrlimit(resource.RLIMIT_AS, (4096 * MIB, 4096 * MIB))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        say(name=name, **measure(body, config))
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
