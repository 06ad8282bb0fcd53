"""The submitter of a site in a bed: its program and what it reads, in the user's home.

    python -m scripts.lib.bed.site DIR NAME KEY CA [KUBECONFIG]

DIR is the site's folder, NAME its name at the NATS server and that of its one pool, which begins
with its kind; KEY and CA are the files with its key there and with who is believed, KUBECONFIG
leads to the site's cluster, if it has one.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from scripts.lib.slurm import files
from scripts.lib.slurm.programs import SUBMITTER
from scripts.lib.slurm.site import REPOSITORY, Site
from templates.nats.permissions import inbox_of
from templates.site.build_config import ON_THE_NODE

# What a pool without a batch system offers: it has nobody to ask.
HOST_OFFERS = {"cpu": "8", "memory": "8Gi", "pods": "64"}
FOLDER = f"/home/{files.USER}/{Path(SUBMITTER).parent}"
KUBECONFIG = "kubeconfig"

# What is particular to the pools of each kind of site.
KINDS: dict[str, dict[str, Any]] = {
    "host": {"backend": "host", "resources": HOST_OFFERS},
    "slurm": {"backend": "slurm"},
    # Without a registry of its own: images are in a folder.
    "htcondor": {
        "backend": "htcondor",
        "build": {"images": {"directory": "/srv/images", "cache": f"{FOLDER}/images"}},
    },
    "podman": {
        "backend": "podman",
        "resources": HOST_OFFERS,
        "build": {"runtime": {"name": "podman"}, "podman": {"network": "pasta"}},
    },
    "kubernetes": {
        "backend": "kubernetes",
        "options": {"kubeconfig": f"{FOLDER}/{KUBECONFIG}", "capacity": "nodes"},
        "build": {
            "runtime": {"name": "kubernetes"},
            "volumes": {},
            "kubernetes": {"claims": {"shared": "shared"}},
            # Its node has the cores of this machine, whatever they are, for all pods.
            "defaults": {"cpu": "50m", "memory": "64Mi"},
        },
    },
}

PROGRAM = """\
#!{python} -P
import sys

sys.path.insert(0, "{repository}")
from submitter.main import main

sys.exit(main())
"""


def write(site: Site, name: str, key: Path, authority: Path, *kubeconfig: Path) -> None:
    """Put all of it there; the site starts the program like its own."""
    program = site.home / SUBMITTER
    folder = program.parent
    for made in (folder, site.home / "pool", site.home / "data"):
        made.mkdir(mode=0o700, exist_ok=True)
    secrets = [(key, "nats.nkey"), *((one, KUBECONFIG) for one in kubeconfig)]
    for source, target in secrets:
        shutil.copy(source, folder / target)
        (folder / target).chmod(0o600)
    shutil.copy(authority, folder / "ca.pem")
    program.write_text(PROGRAM.format(python=site.facts["python"], repository=REPOSITORY))
    program.chmod(0o755)
    settings = _settings(name, f"/home/{files.USER}")
    program.with_suffix(".yaml").write_text(json.dumps(settings, indent=1))  # JSON is YAML
    for path in (site.home / "pool", site.home / "data", folder, *folder.iterdir()):
        os.chown(path, files.USER_ID, files.USER_ID)


def _settings(name: str, home: str) -> dict[str, Any]:
    nats = {
        "servers": [f"wss://{files.CENTRE}:{files.CENTRE_PORT}"],
        "inbox_prefix": inbox_of(name),
        "nkey_file": f"{FOLDER}/nats.nkey",
        "ca_file": f"{FOLDER}/ca.pem",
    }
    kind = KINDS[name.partition("-")[0]]
    pool = {
        "name": name,
        "directory": f"{home}/pool",
        **kind,
        "build": {
            "runtime": {"name": "apptainer"},
            "images": {"cache": f"{home}/images", "pull_attempts": 2, "pull_backoff_s": 2},
            "volumes": {
                "host_paths": [{"path": f"{home}/data"}, {"path": "/usr/bin", "read_only": True}],
                "claims": {"shared": {"path": f"{home}/data"}},
            },
            "rules": {"annotations": ["*", *ON_THE_NODE]},
            **kind.get("build", {}),
        },
        "policy": {"namespaces": ["*"]},  # also where a test takes the runtime away
        "timing": {"poll_s": 1, "resources_s": 5},
    }
    return {"nats": nats, "pools": [pool]}


if __name__ == "__main__":
    directory, name, *given = sys.argv[1:]
    write(Site(Path(directory)), name, *map(Path, given))
