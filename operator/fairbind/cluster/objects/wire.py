"""What we read of Kubernetes' JSON: msgspec structs with only the fields that a scheduling decision needs.

Decoding into these is ten times cheaper than into dicts, because everything else is skipped. Field names are
Kubernetes' own in snake case. Absent and null mean the same. Nothing outside `decode` and `convert` sees these types.
"""

from __future__ import annotations

from msgspec import Struct, field

Amounts = dict[str, str]
Labels = dict[str, str]


class Wire(Struct, rename="camel", gc=False):
    """The root of the types below; they hold no cycles, so the garbage collector need not look at them."""


class Present(Wire):
    """Some object is there; what it says does not matter."""


class OwnerReference(Wire):
    """An object that this one belongs to; at most one of an object's is its controller."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class ObjectMeta(Wire):
    """Who it is."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Labels | None = None
    owner_references: list[OwnerReference] | None = None


class PodAnnotations(Struct, gc=False):
    """What a pod says about the group that it belongs to. Other annotations are not read: they may be large."""

    volcano_group: str | None = field(default=None, name="scheduling.k8s.io/group-name")
    volcano_task: str | None = field(default=None, name="volcano.sh/task-spec")
    kueue_total: str | None = field(default=None, name="kueue.x-k8s.io/pod-group-total-count")
    kueue_required_topology: str | None = field(default=None, name="kueue.x-k8s.io/podset-required-topology")
    kueue_preferred_topology: str | None = field(default=None, name="kueue.x-k8s.io/podset-preferred-topology")
    lws_size: str | None = field(default=None, name="leaderworkerset.sigs.k8s.io/size")
    lws_exclusive_topology: str | None = field(default=None, name="leaderworkerset.sigs.k8s.io/exclusive-topology")
    gang: str | None = field(default=None, name="fairbind.io/gang")
    gang_after_start: str | None = field(default=None, name="fairbind.io/gang-after-start")
    required_topology: str | None = field(default=None, name="fairbind.io/gang-required-topology")
    preferred_topology: str | None = field(default=None, name="fairbind.io/gang-preferred-topology")
    yunikorn_group: str | None = field(default=None, name="yunikorn.apache.org/task-group-name")
    kai_group: str | None = field(default=None, name="pod-group-name")


class PodMeta(ObjectMeta):
    """Which pod it is."""

    annotations: PodAnnotations | None = None


class Resources(Wire):
    """Requests and limits of a container or a pod."""

    requests: Amounts | None = None
    limits: Amounts | None = None


class Port(Struct, gc=False, rename={"host_port": "hostPort", "host_ip": "hostIP"}):
    """A container's port; only those with a host port matter. Kubernetes writes hostIP, not hostIp."""

    host_port: int | None = None
    host_ip: str | None = None
    protocol: str | None = None


class VolumeMount(Wire):
    """How a volume is mounted into a container."""

    bind_mount_options: list[str] | None = None


class RestartRule(Wire):
    """What happens when a container ends in some way."""

    action: str = ""


class Container(Wire):
    """A container, an init container or a sidecar (an init container that restarts always)."""

    name: str = ""
    image: str | None = None
    resources: Resources | None = None
    restart_policy: str | None = None
    restart_policy_rules: list[RestartRule] | None = None
    ports: list[Port] | None = None
    volume_mounts: list[VolumeMount] | None = None


class SelectorRequirement(Wire):
    """One expression of a label selector or of a node selector."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Wire):
    """All parts must hold; an empty one matches everything."""

    match_labels: Labels | None = None
    match_expressions: list[SelectorRequirement] | None = None


class NodeSelectorTerm(Wire):
    """All parts must hold; an empty one matches nothing."""

    match_expressions: list[SelectorRequirement] | None = None
    match_fields: list[SelectorRequirement] | None = None


class NodeSelector(Wire):
    """One term must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class PreferredTerm(Wire):
    """A preference and its weight, from 1 to 100."""

    weight: int = 0
    preference: NodeSelectorTerm | None = None


class NodeAffinity(Wire):
    """Terms about nodes, hard and soft."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredTerm] | None = None


class PodAffinityTerm(Wire):
    """A term about other pods in the same topology domain."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


class PreferredPodTerm(Wire):
    """A preference about other pods and its weight, from 1 to 100."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = field(default_factory=PodAffinityTerm)


class PodAffinity(Wire):
    """Terms about other pods, hard and soft."""

    required_during_scheduling_ignored_during_execution: list[PodAffinityTerm] | None = None
    preferred_during_scheduling_ignored_during_execution: list[PreferredPodTerm] | None = None


class Affinity(Wire):
    """All three kinds of affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire):
    """Which taints do not matter."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class Gate(Wire):
    """A scheduling gate."""

    name: str = ""


class ClaimVolume(Wire):
    """A volume from a PersistentVolumeClaim."""

    claim_name: str = ""


class ImageVolume(Wire):
    """A volume that is an image."""

    reference: str | None = None


class Volume(Wire):
    """A volume; only the kinds on which the choice of a node depends are read."""

    name: str = ""
    image: ImageVolume | None = None
    persistent_volume_claim: ClaimVolume | None = None
    ephemeral: Present | None = None
    aws_elastic_block_store: Present | None = None
    azure_disk: Present | None = None
    cinder: Present | None = None
    gce_persistent_disk: Present | None = None
    iscsi: Present | None = None
    portworx_volume: Present | None = None
    rbd: Present | None = None
    vsphere_volume: Present | None = None


class SpreadConstraint(Wire):
    """A topology spread constraint."""

    topology_key: str = ""
    when_unsatisfiable: str = "DoNotSchedule"
    max_skew: int = 1
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class ResourceClaim(Wire):
    """A claim of dynamic resource allocation, or what it is made of."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class SchedulingGroup(Wire):
    """The group of pods that a pod belongs to."""

    pod_group_name: str | None = None


class PodSpec(Wire):
    """What the pod asks for."""

    node_name: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    preemption_policy: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Amounts | None = None
    resources: Resources | None = None
    node_selector: Labels | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    scheduling_gates: list[Gate] | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None
    volumes: list[Volume] | None = None
    topology_spread_constraints: list[SpreadConstraint] | None = None
    resource_claims: list[ResourceClaim] | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: Present | None = None
    host_network: bool | None = None
    host_users: bool | None = None


class Condition(Wire):
    """A condition of a pod or a node."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    message: str | None = None
    observed_generation: int | None = None


class ContainerStatus(Wire):
    """What a running container holds, which differs from its spec while it is resized."""

    name: str = ""
    resources: Resources | None = None
    allocated_resources: Amounts | None = None


class ServedRequest(Wire):
    """An extended resource that a claim serves."""

    resource_name: str = ""


class ExtendedResourceClaimStatus(Wire):
    """The claim that kube-scheduler made for extended resources of the pod."""

    request_mappings: list[ServedRequest] | None = None


class ResourceClaimStatus(Wire):
    """The claim that was made for one of the pod's templates; without a name none is necessary."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Wire):
    """What became of the pod."""

    phase: str | None = None
    reason: str | None = None
    start_time: str | None = None
    nominated_node_name: str | None = None
    conditions: list[Condition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    resources: Resources | None = None
    allocated_resources: Amounts | None = None
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None
    resource_claim_statuses: list[ResourceClaimStatus] | None = None


class Pod(Wire):
    """A pod. fault: what could not be decoded, when the struct was made from the readable rest."""

    metadata: PodMeta = field(default_factory=PodMeta)
    spec: PodSpec = field(default_factory=PodSpec)
    status: PodStatus = field(default_factory=PodStatus)
    fault: str | None = None


class Taint(Wire):
    """A node's taint."""

    key: str = ""
    value: str | None = None
    effect: str = ""


class NodeSpec(Wire):
    """What administrators say about the node."""

    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeImage(Wire):
    """An image that is on the node, and all its names."""

    names: list[str] | None = None
    size_bytes: int = 0


class NodeStatus(Wire):
    """What the kubelet says about the node."""

    allocatable: Amounts | None = None
    conditions: list[Condition] | None = None
    images: list[NodeImage] | None = None
    declared_features: list[str] | None = None


class Node(Wire):
    """A node."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: NodeSpec = field(default_factory=NodeSpec)
    status: NodeStatus = field(default_factory=NodeStatus)
    fault: str | None = None


class Namespace(Wire):
    """A namespace."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    fault: str | None = None
