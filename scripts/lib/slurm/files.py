"""The files of a Slurm site: configuration, names and addresses, its border."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

USER, USER_ID = "alice", 1000
SLURM_ID = 64030  # Debian gives this number to the user "slurm" everywhere
CLUSTER = "tests"
CPUS, MEMORY_MB, GPUS = 8, 8000, 2  # what each node pretends to have; GPUs only the last one
CENTRE, CENTRE_PORT = "centre", 443  # the one place outside that the login node reaches
CENTRE_NAMES = f"{CENTRE} nats.example.org"  # the other one is what the documentation calls it
MIRRORED = "docker.io registry-1.docker.io index.docker.io"  # what the site's own registry is here

# The network inside, which is the same in each site and seen by none but itself, and the way out.
ADDRESSES = {"ctl": "10.77.0.1", "login": "10.77.0.2"}
CLUSTER = "10.77.0.5"  # of a cluster in it, if there is one (chain_cluster.py)
LOGIN_OUTSIDE, OUTSIDE = "192.0.2.2", "192.0.2.1"

SETTINGS = {
    "ClusterName": CLUSTER,
    "SlurmctldHost": "ctl",
    "SlurmUser": "slurm",
    "AuthType": "auth/munge",
    # No control groups: a machine that tests run on seldom lets us have them.
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "SlurmdParameters": "config_overrides",
    "MpiDefault": "none",
    "MailProg": "/bin/true",
    "PropagateResourceLimits": "NONE",
    "ReturnToService": "2",
    "StateSaveLocation": "/var/spool/slurm/ctld",
    "SlurmdSpoolDir": "/var/spool/slurm/%n",
    "SlurmctldPidFile": "/run/slurm/slurmctld.pid",
    "SlurmdPidFile": "/run/slurm/slurmd.pid",
    "SlurmctldLogFile": "/var/log/slurm/slurmctld.log",
    "SlurmdLogFile": "/var/log/slurm/slurmd.%n.log",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core_Memory",
    "DefMemPerCPU": "100",
    "GresTypes": "gpu",
    "JobAcctGatherType": "jobacct_gather/linux",
    "JobAcctGatherFrequency": "task=1",
    "JobAcctGatherParams": "OverMemoryKill",
    "JobRequeue": "1",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "CANCEL",
    "EnforcePartLimits": "ALL",
    "MaxJobCount": "20000",
    # Patience that suits tests: a node that has died is down after some ten seconds.
    "SlurmctldTimeout": "10",
    "SlurmdTimeout": "6",
    "MessageTimeout": "5",
    "TCPTimeout": "2",
    "BatchStartTimeout": "3",
    "KillWait": "5",
    "UnkillableStepTimeout": "30",
    "InactiveLimit": "0",
    "MinJobAge": "300",
    "SchedulerParameters": "sched_interval=1,batch_sched_delay=0,sched_min_interval=0,"
    "bf_interval=5,requeue_delay=0",
}
WITH_ACCOUNTING = {
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStorageHost": "ctl",
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageTRES": "gres/gpu",
    "AccountingStoreFlags": "job_comment,job_script",
}
WITHOUT_ACCOUNTING = {"AccountingStorageType": "accounting_storage/none"}

# Who may do what, as the administrator of a site would type it after "sacctmgr --immediate".
ACCOUNTS = (
    f"add cluster {CLUSTER}",
    "add account lab Description=lab Organization=university",
    "add account other Description=other Organization=university",
    "add qos small MaxSubmitJobsPerUser=5 MaxJobsPerUser=2",
    "add qos large Priority=10",
    "add qos narrow GrpJobs=1",
    f"add user {USER} Account=lab QOS=normal,small,large DefaultQOS=normal",
)


def node_names(count: int) -> list[str]:
    """The compute nodes of a site."""
    return [f"n{number}" for number in range(1, count + 1)]


def addresses(nodes: Sequence[str]) -> dict[str, str]:
    """Each machine's address in the site's own network."""
    return {**ADDRESSES, **{name: f"10.77.0.{10 + int(name[1:])}" for name in nodes}}


def configuration(
    nodes: Sequence[str], *, accounting: bool, changes: Mapping[str, str]
) -> dict[str, str]:
    """The files of /etc/slurm, and /etc/hosts, by their names."""
    if not nodes:
        return {"hosts": hosts(nodes)}
    return {
        "slurm.conf": slurm_conf(nodes, accounting, changes),
        "gres.conf": f"NodeName={nodes[-1]} Name=gpu Type=a100 File=/dev/gpu[0-{GPUS - 1}]\n",
        "cgroup.conf": "CgroupPlugin=disabled\n",
        "slurmdbd.conf": SLURMDBD_CONF,
        "mariadb.cnf": MARIADB_CNF,
        "hosts": hosts(nodes),
    }


def slurm_conf(nodes: Sequence[str], accounting: bool, changes: Mapping[str, str]) -> str:
    """The site's settings, nodes and partitions; ``changes`` win over settings of ours."""
    settings = {**SETTINGS, **(WITH_ACCOUNTING if accounting else WITHOUT_ACCOUNTING), **changes}
    lines = [f"{key}={value}" for key, value in settings.items()]
    shape = f"CPUs={CPUS} CoresPerSocket={CPUS} RealMemory={MEMORY_MB} State=UNKNOWN"
    for name in nodes:
        gpus = f" Gres=gpu:a100:{GPUS} Feature=gpu" if name == nodes[-1] else ""
        lines.append(f"NodeName={name} {shape}{gpus}")
    narrow = " QOS=narrow" if accounting else ""
    lines += [
        "PartitionName=main Nodes=ALL Default=YES DefaultTime=00:10:00 MaxTime=02:00:00",
        "PartitionName=short Nodes=ALL DefaultTime=00:01:00 MaxTime=00:05:00",
        f"PartitionName=limited Nodes={nodes[0]} MaxNodes=1 MaxTime=1-00:00:00{narrow}",
        "PartitionName=staff Nodes=ALL AllowGroups=staff",
        # Jobs of the first one take the place of all others; those of the second one wait again.
        "PartitionName=urgent Nodes=ALL PriorityTier=10 PreemptMode=OFF",
        "PartitionName=yielding Nodes=ALL PreemptMode=REQUEUE",
    ]
    return "\n".join(lines) + "\n"


SLURMDBD_CONF = """\
AuthType=auth/munge
DbdHost=ctl
SlurmUser=slurm
LogFile=/var/log/slurm/slurmdbd.log
PidFile=/run/slurm/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
"""

# Small and quick: what it holds need not survive this machine.
MARIADB_CNF = """\
[client]
socket=/run/mysqld/mysqld.sock
[mariadbd]
user=mysql
datadir=/var/lib/mysql
socket=/run/mysqld/mysqld.sock
pid-file=/run/mysqld/mysqld.pid
log-error=/var/log/slurm/mariadb.log
skip-networking
innodb-buffer-pool-size=256M
innodb-log-file-size=16M
innodb-lock-wait-timeout=900
innodb-snapshot-isolation=OFF
innodb-flush-log-at-trx-commit=0
max-allowed-packet=64M
"""


def hosts(nodes: Sequence[str]) -> str:
    """/etc/hosts of every machine of the site."""
    lines = ["127.0.0.1 localhost", f"{OUTSIDE} {CENTRE_NAMES}", f"{ADDRESSES['login']} {MIRRORED}"]
    lines.append(f"{CLUSTER} kubernetes")
    lines += [f"{address} {name}" for name, address in addresses(nodes).items()]
    return "\n".join(lines) + "\n"


# At the site's border: from the login node to one port outside, and nothing in.
BORDER = f"""\
table inet border {{
    chain incoming {{
        type filter hook input priority 0; policy drop;
        iifname "lo" accept
        iifname "login" ct state established accept
        iifname "login" ip daddr {OUTSIDE} tcp dport {CENTRE_PORT} accept
        reject
    }}
    chain forwarded {{
        type filter hook forward priority 0; policy drop;
        reject
    }}
    chain outgoing {{
        type filter hook output priority 0; policy accept;
        oifname "login" ct state new reject
    }}
}}
"""
