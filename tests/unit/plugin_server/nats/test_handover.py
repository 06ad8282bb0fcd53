"""Jobs on their way from the threads of requests to the loop."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from plugin_server.common.errors import Refused
from plugin_server.nats.bridge import Bridge
from plugin_server.nats.gateway import Gateway
from plugin_server.nats.handover import Handover
from plugin_server.nats.outbox import Sender
from plugin_server.state.pending_deletes import Deletions
from templates.nats.options import LinkSettings
from templates.pod.create_request import read_create_request
from templates.site.build_config import BuildConfig
from templates.translation.build import build
from tests.support.system import request_of


def handover_without_loop() -> Handover:
    def ignore(*_: object) -> None:
        pass

    gateway = Gateway(LinkSettings(()), "interlink", ignore, ignore, ignore, ignore)
    deletions = Deletions([], ignore)
    return Handover(Bridge(), Sender(gateway, deletions), deletions)


def test_a_loop_that_has_stopped_refuses_every_job_at_once() -> None:
    handover = handover_without_loop()
    pod = read_create_request(json.dumps(request_of("true")).encode())
    job = build(pod, BuildConfig())

    def send(_: int) -> Refused | None:
        return handover.send("cpu", job, 60)

    with ThreadPoolExecutor(8) as threads:
        refusals = list(threads.map(send, range(40), timeout=20))
    assert {str(refusal) for refusal in refusals} == {
        "nothing was submitted: pool cpu: the plugin is stopping"
    }
