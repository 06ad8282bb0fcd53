"""Running real job scripts: here for ``host``, in scripts/site-root for the others."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional, Union

import yaml

from templates.cli.render_pod import write_job
from templates.job.model import Job
from templates.job.records import JobState, Record, fold, parse_lines
from templates.pod.model import Pod
from templates.pod.user_manifests import read_manifests
from templates.resolve.images import find
from templates.site.build_config import ON_THE_NODE, BuildConfig, Images, Rules, Runtime
from templates.translation.build import build

REPOSITORY = Path(__file__).resolve().parents[2]
SITE_ROOT = REPOSITORY / "scripts" / "site-root"
SITE_RUNTIMES = (
    "apptainer",
    "singularity",
    "podman",
    "host-alice",
)  # host-alice: host, unprivileged
ALICE = 1000
BUSYBOX = "busybox:1.36"
ENTRY = "docker.io/tests/entry:1"  # ENTRYPOINT ["/bin/echo", "entry-point"], CMD ["image-command"]


class Finished(NamedTuple):
    """A job that has ended."""

    code: int  # of the script
    state: JobState  # as its records tell it
    records: list[Record]
    directory: Path  # with logs/
    output: str  # what the script itself said

    def log(self, container: str, start: int = 0) -> str:
        """What a container wrote, in one of its starts."""
        return (self.directory / "logs" / f"{container}.{start}.log").read_text(errors="replace")

    def ends(self) -> dict[str, int]:
        """The exit code of each container that has ended."""
        found = self.state.containers.items()
        return {name: state.end.exit_code for name, state in found if state.end is not None}


class Running:
    """A job that has been started; ``wait`` ends it in any case."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path, output: Path) -> None:
        self.process = process
        self.directory = directory
        self._output = output

    @property
    def records(self) -> list[Record]:
        path = self.directory / "records"
        return parse_lines(path.read_bytes()) if path.exists() else []

    @property
    def state(self) -> JobState:
        return fold(self.records)

    def until(self, condition: Callable[[JobState], Any], seconds: float = 180) -> JobState:
        """Wait for a state; fails with what is there instead if it does not come."""
        end = time.monotonic() + seconds
        while True:
            state = self.state
            if condition(state):
                return state
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"it never came: {state} {self._output.read_text()}")
            time.sleep(0.02)

    def script_pid(self) -> int:
        """The process of job.sh itself, as seen from here."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            script = str(self.directory / "job.sh").encode()
            if _is_script(int(entry.name), script) and not _is_script(parent, script):
                return int(entry.name)
        raise AssertionError("job.sh does not run")

    def terminate(self) -> None:
        """What a batch system does first to end a job."""
        os.kill(self.script_pid(), signal.SIGTERM)

    def wait(self, seconds: float = 300) -> Finished:
        """Its end."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(
                f"it does not end: {self.state} {self._output.read_text()}"
            ) from None
        output = self._output.read_text(errors="replace")
        return Finished(code, self.state, self.records, self.directory, output)


def _is_script(pid: int, script: bytes) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[1:2] == [script] and b"--inside" not in words
    except OSError:
        return False


class Site:
    """One runtime, and a folder for its jobs."""

    def __init__(self, runtime: str, folder: Path) -> None:
        self.runtime = runtime
        self.folder = folder  # the same path inside the site root
        self.inside = runtime in SITE_RUNTIMES

    @property
    def config(self) -> BuildConfig:
        """How scripts are built here; tests change it with ``dataclasses.replace``."""
        name = "host" if self.runtime == "host-alice" else self.runtime
        images = Images(cache=str(self.folder / "images"), pull_attempts=1)
        rules = Rules(annotations=("*", *ON_THE_NODE))
        return BuildConfig(runtime=Runtime(name=name), images=images, rules=rules)

    def start(
        self,
        pod: Union[Pod, str, dict[str, Any], list[dict[str, Any]]],
        config: Optional[BuildConfig] = None,
        environment: Optional[dict[str, str]] = None,
    ) -> Running:
        """Translate a pod (or manifests) and run it; ``environment`` is the batch system's."""
        config = config or self.config
        job = build(pod if isinstance(pod, Pod) else manifests(pod), config)
        return self.start_job(job, config, environment)

    def start_job(
        self, job: Job, config: BuildConfig, environment: Optional[dict[str, str]] = None
    ) -> Running:
        directory = Path(tempfile.mkdtemp(prefix="job-", dir=self.folder)) / job.name
        write_job(job, directory)
        output = directory.with_suffix(".out")
        command = ["bash", str(directory / "job.sh"), str(directory), str(directory / "spool")]
        base = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], **(environment or {})}
        if self.inside:
            self._provide(job, config)
            _give(directory.parent, ALICE)
            words = [f"{name}={value}" for name, value in (environment or {}).items()]
            command = [str(SITE_ROOT), "run", "env", *words, *command]
            base = {**os.environ, "SITE_BIND": str(self.folder)}
        with output.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=base,
                cwd="/",
            )
        return Running(process, directory, output)

    def run(self, pod: Any, config: Optional[BuildConfig] = None, **more: Any) -> Finished:
        """Start, and wait for the end."""
        return self.start(pod, config, **more).wait()

    def _provide(self, job: Job, config: BuildConfig) -> None:
        """Put the test images into the job's image cache; Podman has them in its own store."""
        if config.runtime.name not in ("apptainer", "singularity") or not config.images.cache:
            return
        cache = Path(config.images.cache)
        for name, file in ((BUSYBOX, "busybox_1.36.sif"), (ENTRY, "entry_1.sif")):
            # With a scheme, no prefix of the configuration applies.
            known = find(f"docker://{name}", config.runtime.name, config.images, "", "")
            target = cache / known.file
            if target.exists():
                continue
            cache.mkdir(exist_ok=True)
            temporary = Path(tempfile.mkdtemp(dir=cache)) / file
            shutil.copy(site_root() / "srv" / "images" / file, temporary)
            temporary.rename(target)
            Path(f"{target}.checked").touch()
            _give(cache, ALICE)


@lru_cache(maxsize=1)
def site_root() -> Path:
    """Where the site's root file system is."""
    found = subprocess.run([str(SITE_ROOT), "path"], check=True, capture_output=True, text=True)
    return Path(found.stdout.strip())


def _give(folder: Path, user: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user, follow_symlinks=False)


def manifests(content: Union[str, dict[str, Any], list[dict[str, Any]]]) -> Pod:
    """A pod from YAML text, or from one or more manifests as values."""
    if isinstance(content, dict):
        content = [content]
    text = content if isinstance(content, str) else yaml.safe_dump_all(content, allow_unicode=True)
    return read_manifests([("pod.yaml", text)])


def pod(*containers: dict[str, Any], name: str = "pod", **spec: Any) -> dict[str, Any]:
    """A Pod manifest that never restarts, of containers that need only a command."""
    named = [
        {"name": f"c{index}", "image": BUSYBOX, **container}
        for index, container in enumerate(containers)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": named, **spec},
    }


def sh(script: str, *args: str, **more: Any) -> dict[str, Any]:
    """A container that runs a shell script."""
    return {"command": ["sh", "-c", script, "sh", *args], **more}


def config_map(name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **content}


def secret(name: str, **content: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, **content}


def with_images(config: BuildConfig, **changes: Any) -> BuildConfig:
    """The configuration with other settings for images."""
    return replace(config, images=replace(config.images, **changes))


def with_script(config: BuildConfig, **changes: Any) -> BuildConfig:
    """The configuration with other settings for scripts."""
    return replace(config, script=replace(config.script, **changes))


def put_program(folder: Path, name: str, script: str) -> str:
    """A program in a directory, which is returned, to be had first on a PATH."""
    place = folder / "bin"
    place.mkdir(exist_ok=True)
    (place / name).write_text(script)
    (place / name).chmod(0o755)
    return str(place)
