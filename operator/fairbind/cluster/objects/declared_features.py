"""What a pod needs of the software of its node, where not every kubelet has it.

Kubelets say so in `status.declaredFeatures`, and kube-scheduler knows which fields of a pod need which of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fairbind.cluster.objects import wire

RESTART_ALL = "RestartAllContainersOnContainerExits"
USERS_ON_HOST_NETWORK = "UserNamespacesHostNetworkSupport"
MOUNT_OPTIONS = "VolumeBindMountOptions"
RESTART_ALL_ACTION = "RestartAllContainers"
NEEDED = (RESTART_ALL, USERS_ON_HOST_NETWORK, MOUNT_OPTIONS)
"""Those that pods may need, sorted. Others are declared, too; on them only changes of running pods depend."""


def find_needed_features(spec: wire.PodSpec) -> tuple[str, ...]:
    """Return the features that a node must declare to take the pod, sorted."""
    needed = set(_list_needed(spec))
    return tuple(name for name in NEEDED if name in needed) if needed else ()


def _list_needed(spec: wire.PodSpec) -> Iterator[str]:
    if spec.host_network and spec.host_users is False:
        yield USERS_ON_HOST_NETWORK
    for containers in (spec.containers, spec.init_containers):
        for container in containers or ():
            if any(rule.action == RESTART_ALL_ACTION for rule in container.restart_policy_rules or ()):
                yield RESTART_ALL
            if any(mount.bind_mount_options for mount in container.volume_mounts or ()):
                yield MOUNT_OPTIONS


def keep_needed(declared: Iterable[str]) -> tuple[str, ...]:
    """Return those of a node's features that pods may need, sorted."""
    declared = set(declared)
    return tuple(name for name in NEEDED if name in declared)
