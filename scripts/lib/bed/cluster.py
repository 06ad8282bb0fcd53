"""The cable from a site of scripts/slurm-site to the bed that is the site's cluster.

    python -m scripts.lib.bed.cluster DIR PID

DIR is the site's folder, PID the first process of the bed's machine. The site's machines then reach
the cluster's API server as https://kubernetes:6443.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts.lib.slurm import files
from scripts.lib.slurm.machines import Machine, began, network
from scripts.lib.slurm.site import Site


def connect(site: Site, machine: Machine) -> None:
    """Put a cable from the site's switch to the cluster."""
    ends = ("cluster", "netns", str(site.building.pid), "type", "veth", "peer", "name", "site")
    subprocess.run(["ip", "link", "add", *ends, "netns", str(machine.pid)], check=True)
    network(site.building, ["link set cluster master site up"])
    network(machine, [f"address add {files.CLUSTER}/24 dev site", "link set site up"])


if __name__ == "__main__":
    directory, pid = sys.argv[1:]
    connect(Site(Path(directory)), Machine(int(pid), began(int(pid))))
