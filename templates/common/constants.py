"""Names that Kubernetes, interLink and the device vendors chose for us, each written once.

Nothing here may be changed to taste: users and other programs spell these strings.
"""

from __future__ import annotations

# Tolerations of an offloaded pod.
POOL_TOLERATION = "pool.vk.io"  # its value names the pool that the pod goes to
VIRTUAL_NODE_TAINT = "virtual-node.interlink/no-schedule"  # what every interLink node carries

# Annotation prefixes that address the batch system; the part behind the slash is the option.
SLURM_PREFIX = "slurm-job.vk.io/"  # interLink's Slurm plugin
KNOC_SLURM_PREFIX = "slurm-job.knoc.io/"  # its predecessor, still found in old manifests
JOB_PREFIX = "job.vk.io/"  # not bound to one batch system
CONDOR_PREFIX = "condor-job.vk.io/"
HTCONDOR_PREFIX = "htcondor-job.vk.io/"  # interLink's HTCondor plugin
KNOC_HTCONDOR_PREFIX = "htcondor-job.knoc.io/"

POOL_ANNOTATION = JOB_PREFIX + "pool"  # names the pool of a pod whose tolerations name none

# Annotations with comma-separated names of containers that interLink runs in the cluster itself.
LOCAL_CONTAINERS = "interlink.eu/disable-offload-containers"
LOCAL_INIT_CONTAINERS = "interlink.eu/disable-offload-init-containers"

# On what we make in a cluster that is itself a pool.
SITE_JOB_LABEL = "interlink-nats/job"  # the job's name
SITE_POOL_LABEL = "interlink-nats/pool"
SITE_DIRECTORY_LABEL = "interlink-nats/directory"  # which pool's directory the job is in
SITE_POD_ANNOTATION = "interlink-nats/pod"  # the first cluster's pod: namespace/name
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"  # the LocalQueue that a pod waits in

JOB_ID = "JobID"  # annotation that the virtual kubelet sets from our answer to a create

# Extended resources that are GPUs.
NVIDIA_GPU = "nvidia.com/gpu"
AMD_GPU = "amd.com/gpu"
INTEL_GPU = "intel.com/gpu"
INTEL_GPU_I915 = "gpu.intel.com/i915"  # the name that Intel's own device plugin uses
GPUS = frozenset((NVIDIA_GPU, AMD_GPU, INTEL_GPU, INTEL_GPU_I915))
NVIDIA_MIG_PREFIX = "nvidia.com/mig-"  # slices of a GPU: nvidia.com/mig-1g.5gb, ...


def is_gpu(resource: str) -> bool:
    """Return whether a resource name stands for whole GPUs or slices of them."""
    return resource in GPUS or resource.startswith(NVIDIA_MIG_PREFIX)


def gpu_vendor(resource: str) -> str:
    """Return the vendor of a resource that is GPUs: nvidia, amd or intel; empty for another."""
    if not is_gpu(resource):
        return ""
    return next(vendor for vendor in ("nvidia", "amd", "intel") if vendor in resource)
