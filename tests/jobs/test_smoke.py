"""One pod with a bit of everything, under every runtime."""

from tests.support.script_runner import Site, config_map, pod, sh


def test_init_container_then_main_containers_share_a_volume(any_site: Site) -> None:
    work = {"name": "work", "mountPath": "/work"}
    done = any_site.run(
        [
            pod(
                sh(
                    "cat /work/x /etc/app/a; echo bye >/dev/termination-log; exit 3",
                    volumeMounts=[work, {"name": "cfg", "mountPath": "/etc/app"}],
                ),
                sh("echo second"),
                initContainers=[
                    {
                        "name": "init",
                        "image": "busybox:1.36",
                        **sh("echo data >/work/x", volumeMounts=[work]),
                    }
                ],
                volumes=[
                    {"name": "work", "emptyDir": {}},
                    {"name": "cfg", "configMap": {"name": "cfg"}},
                ],
            ),
            config_map("cfg", data={"a": "from the map"}),
        ]
    )
    assert done.ends() == {"init": 0, "c0": 3, "c1": 0}, done
    assert done.log("c0") == "data\nfrom the map"
    assert done.state.containers["c0"].end.message == "bye\n"
    assert done.code == done.state.exit_code == 3
