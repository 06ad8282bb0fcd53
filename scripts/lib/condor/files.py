"""The files of an HTCondor site: configuration, names and addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scripts.lib.slurm.files import CENTRE_NAMES, OUTSIDE, USER, addresses, node_names

DOMAIN = "site.test"
CPUS, MEMORY_MB, GPUS = 8, 8000, 2  # what each node pretends to have; GPUs only the last one
DAEMONS = {"ctl": "COLLECTOR NEGOTIATOR", "login": "SCHEDD"}  # nodes have STARTD
AWAY = "away"  # in a site that is a computing element: the machine from which it is used
AWAY_ADDRESS = "10.77.0.3"
IAM, IAM_PORT = f"iam.{DOMAIN}", 8443  # who gives tokens for it; there has to be one at "ctl"
AUDIENCE = f"ce.{DOMAIN}"
CLIENT = "interlink"  # the subject of tokens that are the user's
AUTHORITY = "/etc/condor/tls/ca.pem"  # on machines of a computing element
# How its daemons look for an issuer's keys: libSciTokens reads this of their environment.
SCITOKENS = {
    "SCITOKEN_CONFIG_TLS_CA_FILE": AUTHORITY,
    "SCITOKEN_CONFIG_KEYCACHE_UPDATE_INTERVAL_S": "5",
}
NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\n"

# Of every machine. Patience that suits tests: what has died is noticed within seconds.
SETTINGS = {
    "CONDOR_HOST": f"ctl.{DOMAIN}",
    "COLLECTOR_HOST": f"ctl.{DOMAIN}:9618",
    "UID_DOMAIN": DOMAIN,
    "TRUST_DOMAIN": DOMAIN,
    "TRUST_UID_DOMAIN": "True",
    "SEC_DEFAULT_AUTHENTICATION": "REQUIRED",
    "SEC_DEFAULT_ENCRYPTION": "REQUIRED",
    "SEC_DEFAULT_INTEGRITY": "REQUIRED",
    "SEC_DEFAULT_AUTHENTICATION_METHODS": "FS, IDTOKENS",
    "SEC_CLIENT_AUTHENTICATION_METHODS": "FS, IDTOKENS, ANONYMOUS",
    "SEC_READ_AUTHENTICATION": "OPTIONAL",
    "SEC_READ_AUTHENTICATION_METHODS": "FS, IDTOKENS, ANONYMOUS",
    "SEC_READ_ENCRYPTION": "OPTIONAL",
    "SEC_READ_INTEGRITY": "OPTIONAL",
    "ALLOW_READ": "*",
    # The machines share a key; who has it is condor@password.
    "ALLOW_WRITE": f"*@{DOMAIN}, condor@password",
    "ALLOW_DAEMON": f"condor@{DOMAIN}, condor@password",
    "ALLOW_NEGOTIATOR": f"condor@{DOMAIN}, condor@password",
    "ALLOW_ADMINISTRATOR": f"root@{DOMAIN}, condor@{DOMAIN}, condor@password",
    "DISCARD_SESSION_KEYRING_ON_STARTUP": "False",
    "BASE_CGROUP": "",
    "MOUNT_UNDER_SCRATCH": "",  # the site's shared folder may be below /tmp
    "RUNBENCHMARKS": "False",
    "UPDATE_INTERVAL": "5",
    "MASTER_UPDATE_INTERVAL": "5",
    "SCHEDD_INTERVAL": "2",
    "SCHEDD_MIN_INTERVAL": "0",
    # The negotiator comes by itself, all the time. Told to come, it may ask the schedd who it is
    # while the schedd asks the same of it: then each waits for the other, for 20 s.
    "SCHEDD_SEND_RESCHEDULE": "False",
    "NEGOTIATOR_INTERVAL": "1",
    "NEGOTIATOR_MIN_INTERVAL": "0",
    "NEGOTIATOR_CYCLE_DELAY": "0",
    "MASTER_BACKOFF_CONSTANT": "1",
    "MASTER_BACKOFF_CEILING": "4",
    "JOB_START_DELAY": "0",
    "MAX_JOBS_RUNNING": "200",
    "CLAIM_WORKLIFE": "0",
    "JOB_DEFAULT_LEASE_DURATION": "20",
    "ALIVE_INTERVAL": "5",
    "SHADOW_QUEUE_UPDATE_INTERVAL": "10",
    "STARTD_ATTRS": "$(STARTD_ATTRS), HasCvmfs",
    "HasCvmfs": "True",
    "ONE_LIMIT": "1",  # jobs with "concurrency_limits = one" run one at a time
}


# Of the access point and the collector of a computing element: tokens, over TLS.
OF_ELEMENT = {
    "SEC_DEFAULT_AUTHENTICATION_METHODS": "FS, IDTOKENS, SCITOKENS",
    "SEC_CLIENT_AUTHENTICATION_METHODS": "FS, IDTOKENS",
    "SEC_READ_AUTHENTICATION": "REQUIRED",
    "SEC_READ_AUTHENTICATION_METHODS": "FS, IDTOKENS, SCITOKENS",
    "SEC_READ_ENCRYPTION": "REQUIRED",
    "SEC_READ_INTEGRITY": "REQUIRED",
    "ALLOW_READ": f"*@{DOMAIN}, condor@password",
    "AUTH_SSL_SERVER_CERTFILE": "/etc/condor/tls/cert.pem",
    "AUTH_SSL_SERVER_KEYFILE": "/etc/condor/tls/key.pem",
    "AUTH_SSL_SERVER_CAFILE": "/etc/condor/tls/ca.pem",
    "SCITOKENS_SERVER_AUDIENCE": AUDIENCE,
    "CERTIFICATE_MAPFILE": "/etc/condor/mapfile",
    "CERTIFICATE_MAPFILE_ASSUME_HASH_KEYS": "true",
    # How long a session outlives the token that it began with; not those of the daemons.
    "SEC_DEFAULT_SESSION_DURATION": "30",
    "SEC_READ_SESSION_DURATION": "30",
    "SEC_WRITE_SESSION_DURATION": "30",
    "SEC_DAEMON_SESSION_DURATION": "86400",
    "SEC_NEGOTIATOR_SESSION_DURATION": "86400",
    "SEC_ADVERTISE_STARTD_SESSION_DURATION": "86400",
    "SEC_ADVERTISE_SCHEDD_SESSION_DURATION": "86400",
    "SEC_ADVERTISE_MASTER_SESSION_DURATION": "86400",
}
MAPFILE = f"SCITOKENS https://{IAM}:{IAM_PORT},{CLIENT} {USER}@{DOMAIN}\n"


def places_of(nodes: Sequence[str], *, element: bool) -> dict[str, str]:
    """Each machine's address in the site's own network."""
    return {**addresses(nodes), **({AWAY: AWAY_ADDRESS} if element else {})}


def configuration(
    nodes: Sequence[str], *, shared: bool, element: bool, changes: Mapping[str, str]
) -> dict[str, str]:
    """The files of a site by their names: NAME.conf of each machine, hosts and nsswitch.conf."""
    places = places_of(nodes, element=element)
    own = OF_ELEMENT if element else {}
    files = {
        f"{name}.conf": _config(
            name, places, nodes, shared, {**(own if name in DAEMONS else {}), **changes}
        )
        for name in addresses(nodes)
    }
    files["outside.conf"] = files[f"{AWAY}.conf"] = ""
    lines = ["127.0.0.1 localhost", f"{OUTSIDE} {CENTRE_NAMES}"]
    lines += [f"{address} {name}.{DOMAIN} {name}" for name, address in places.items()]
    lines.append(f"{places['ctl']} {IAM}")
    hosts = "\n".join(lines) + "\n"
    return {**files, "hosts": hosts, "nsswitch.conf": NSSWITCH, "mapfile": MAPFILE}


def _config(
    name: str,
    places: Mapping[str, str],
    nodes: Sequence[str],
    shared: bool,
    changes: Mapping[str, str],
) -> str:
    own = {
        "NETWORK_HOSTNAME": f"{name}.{DOMAIN}",
        "NETWORK_INTERFACE": places[name],
        "DAEMON_LIST": f"MASTER {DAEMONS.get(name, 'STARTD')}",
        "FILESYSTEM_DOMAIN": DOMAIN if shared else f"{name}.{DOMAIN}",
    }
    if name in nodes:
        own |= {"NUM_CPUS": str(CPUS), "MEMORY": str(MEMORY_MB)}
    if name == nodes[-1]:
        own |= {"MACHINE_RESOURCE_GPUs": ", ".join(f"GPU-{n}" for n in range(GPUS))}
    return "".join(f"{key} = {value}\n" for key, value in {**SETTINGS, **own, **changes}.items())


__all__ = ["configuration", "node_names", "places_of"]
