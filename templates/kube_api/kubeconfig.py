"""Access to a Kubernetes API by a kubeconfig, or by the account of the pod that we run in.

The only module that imports the package ``kubernetes``: it supports every kind of credentials,
programs that issue tokens among them, and renews those that expire.
"""

from __future__ import annotations

from typing import Any

import yaml
from kubernetes import client, config

from templates.common.errors import ConfigError, one_line
from templates.kube_api.client import ApiAccess


class Kubeconfig:
    """Access by a kubeconfig, through settings and connections of the package."""

    def __init__(self, path: str, where: str) -> None:
        """Read it, or without a path the pod's account; ``where`` begins a ``ConfigError``."""
        self._path, self._where = path, where
        self.renew()

    def renew(self) -> None:
        """Read it anew: new credentials are put into its files."""
        settings: Any = client.Configuration()
        try:
            if self._path:
                config.load_kube_config(self._path, client_configuration=settings)
            else:
                config.load_incluster_config(client_configuration=settings)
            connections = client.ApiClient(settings).rest_client.pool_manager
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
            reason = one_line(str(error)).removeprefix(f"{self._where}: ")
            raise ConfigError(self._where, reason) from None
        self._read = settings, connections

    def access(self) -> ApiAccess:
        """Return what was read, with credentials that are renewed when they expire."""
        settings, connections = self._read
        try:
            entries = settings.auth_settings().values()
        except config.ConfigException as error:
            raise ConfigError(self._where, one_line(str(error))) from None
        headers = {entry["key"]: entry["value"] for entry in entries if entry.get("value")}
        return ApiAccess(settings.host, connections, headers)
