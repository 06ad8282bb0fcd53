"""scripts/bed up --chart: a release behind Traefik, and a site with a border of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.chart.helm import REPO, helm
from tests.support.kueue_bed import KueueBed, running, until

RELEASE = "interlink"
SITE = "host"


@pytest.fixture(scope="module")
def whole() -> Iterator[KueueBed]:
    with running(f"chart-up-{os.getpid()}", sites=[SITE], options=["--chart"]) as found:
        yield found


def test_the_documented_job_goes_to_the_site_and_back(whole: KueueBed) -> None:
    whole.apply((REPO / "scripts" / "lib" / "bed" / "job.yaml").read_text())
    until(lambda: whole.get("job", "hello")["status"].get("succeeded"), 180, "the job")
    (pod,) = whole.api.get("pods", selector="job-name=hello")["items"]
    assert pod["spec"]["nodeName"] == "interlink"
    said = whole.kubectl("logs", "job/hello").splitlines()
    assert said[0].startswith("hello from ") and said[1:] == ["bye"]
    (folder,) = (whole.site(SITE).home / "pool" / "jobs").iterdir()
    assert folder.name.startswith("hello-")


def test_helm_tests_the_release(whole: KueueBed) -> None:
    words = ("test", RELEASE, "--namespace", RELEASE, "--timeout", "3m")
    done = helm(*words, kubeconfig=whole.kubeconfig, seconds=200)
    assert done.stdout.count("Phase:          Succeeded") == 2, done.stdout + done.stderr


def test_traefik_is_a_program_of_the_bed(whole: KueueBed) -> None:
    """The site has no other way in, and takes it again as soon as it is there."""
    whole.kill("traefik")
    assert whole.ended() == ["traefik"]
    whole.start("traefik")
    test_helm_tests_the_release(whole)
