"""Each constant that bounds how many is known: of whom it is a bound, and what one tenant may take of it.

What bounds all tenants together is in the table of docs/reference/shared-limits.md, with one tenant's part and the
test of it. All others are sorted here, so that a new constant fails until it is sorted, too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from house.tree import ROOT, find_files

PACKAGES = ("cluster", "kube", "web", "scheduling")
BOUND = re.compile(r"_?(MAX|MOST)_\w+|LIMITS|BACKLOG|OWNERS|\w*AT_ONCE|\w+_LENGTH|\w+_PER_(LOOK|QUEUE|CLASS|ADDRESS)")
TIME = re.compile(r".*SECONDS?(_\w+)?")
ROW = re.compile(r"\b(\w+/[\w/]+\.[A-Z_]+)\b")
"""A limit, in the comment of a row that names those of its line."""

OF_ONE_OBJECT = """
scheduling/cycle/reservations/needs.MAX_TASKS_ADDED
scheduling/cycle/reservations/review.MAX_SERVERS_OF_GROUP
scheduling/cycle/gangs/placing.MAX_DOMAINS_TRIED
cluster/messages.MAX_CHARACTERS cluster/messages.MAX_KINDS
cluster/messages.MAX_REASONS cluster/messages._MAX_SHARE_DIGITS
cluster/cache/tenant_overviews.MOST_CLASSES cluster/other_schedulers/extender.MOST_NAMED
cluster/objects/device_facts.MAX_DEVICES cluster/objects/device_facts.MAX_CONSUMERS
cluster/objects/requests.MAX_RESOURCES cluster/objects/facts.MOST_HOSTS
cluster/objects/image_facts.MAX_IMAGES cluster/objects/image_facts.MAX_NODE_NAMES cluster/objects/image_facts.MAX_NAME
cluster/objects/device_claims.MAX_DEVICE_CLAIMS cluster/objects/group_facts.MAX_ROLES
cluster/objects/quota_facts.MAX_QUOTA_RESOURCES
cluster/objects/budget.MAX_NODE_TERMS cluster/objects/budget.MAX_NODE_EXPRESSIONS
cluster/objects/budget.MAX_NODE_VALUES cluster/objects/budget.MAX_SELECTOR_LABELS
cluster/objects/budget.MAX_TOLERATIONS cluster/objects/budget.MAX_HOST_PORTS cluster/objects/budget.MAX_LABELS
cluster/objects/budget.MAX_POD_TERMS cluster/objects/budget.MAX_POD_TERM_PARTS cluster/objects/budget.MAX_CHARACTERS
cluster/objects/budget.MAX_PLACED_HOST_PORTS cluster/objects/budget.MAX_REPELLING_TERMS
cluster/objects/budget.MAX_REPELLING_PARTS cluster/objects/budget.MAX_PREFERRED_TERMS
cluster/objects/budget.MAX_PREFERRED_PARTS cluster/objects/volume_facts.MAX_CLAIMS
cluster/filters/image_locality.MOST_SIZE_PER_IMAGE cluster/filters/term_index.MAX_PLACES
kube/writers/binder.MOST_ATTEMPTS kube/writers/opener._SENT_AT_ONCE
kube/writers/status.MAX_NAMES kube/writers/share_report.MAX_LISTED kube/writers/status.MAX_UNCLAIMED
kube/client/api.MOST_PAGE_BYTES web/extender.MOST_BYTES
web/serving.MAX_PORT web/serving.MOST_HEADERS kube/operator/other_installations.MOST_UNFINISHED
kube/operator/other_installations.MOST_NAMED
scheduling/policies/server_classes.MAX_TOLERANCE scheduling/cycle/reservations/review.MAX_LOOKED_AT
scheduling/cycle/order/kept_back.MOST_NAMED
"""
OF_ONE_TENANT = """
cluster/state/term_rotation.MAX_TENANT_TERMS cluster/state/volume_plans.MOST_PLANS
cluster/classes/window.MAX_TENANT_PLACEMENTS
cluster/state/kept_places.MAX_TENANT_PLACES cluster/state/quotas.MAX_GROUPS_FOLLOWED
cluster/classes/window.MAX_TENANT_REASONS
cluster/state/kubelet_refusals.MOST_REFUSALS cluster/state/kubelet_refusals.MOST_KNOWN
cluster/classes/window.MAX_TENANT_CLASSES cluster/loop/bind_limits.MAX_STALLED_IN_NAMESPACE
cluster/filters/term_index.MAX_TERMS cluster/filters/term_index.MAX_PARTS
kube/client/reviews.MOST_WAITING_PER_ADDRESS kube/writers/pod_messages.EVENTS_PER_CLASS
kube/writers/recorder.NOTICES_PER_QUEUE kube/writers/share_reports.MAX_DUE_OF_TENANT
"""
OF_NODES_AND_ADMINISTRATORS = """
cluster/state/offered_resources.MAX_AXES cluster/objects/device_facts.MAX_SHARED_PARTS kube/operator/extender.MOST_NODES
kube/operator/node_fault_log.MOST_NAMES kube/operator/node_fault_log.MOST_LINES kube/operator/list_once.MOST_REPEATS
kube/operator/journal.MAX_BYTES kube/operator/journal.MAX_WAITING kube/operator/open_gates.AT_ONCE
kube/client/reflector.LINES_AT_ONCE kube/client/credentials.MOST_KUBECONFIG_BYTES
cluster/tenancy/node_amounts.MAX_ENTRIES cluster/tenancy/node_amounts.MAX_AMOUNTS
cluster/tenancy/tree.MAX_CHILDREN
"""
MEMORY_OF_ANSWERS = """
cluster/loop/write_limits.MAX_REMEMBERED cluster/loop/postponements.MAX_REMEMBERED
cluster/loop/claim_rests.MAX_REMEMBERED
cluster/other_schedulers/node_waits.MAX_REMEMBERED web/connections.MOST_PROVEN
cluster/loop/bind_limits.MAX_REMEMBERED cluster/state/nominations.MOST_KNOWN
cluster/objects/requests.MAX_SHARED_DEMANDS cluster/objects/requests.MAX_REMEMBERED
cluster/objects/constraints.MAX_SHARED_PLAIN cluster/objects/image_facts.MAX_SHARED_IMAGES
cluster/objects/image_facts.MAX_SHARED_NAMES cluster/objects/image_facts.MAX_SHARED_USES
cluster/objects/volume_facts.MAX_SHARED_TOPOLOGIES cluster/objects/convert.MAX_SHARED_MESSAGES
cluster/objects/convert.MAX_SHARED_NAMES cluster/objects/convert.MAX_SHARED_VALUES
cluster/objects/convert.MAX_SHARED_TIMES cluster/objects/group_marks.MAX_SHARED_MARKS
cluster/filters/term_index.MAX_REMEMBERED
scheduling/cycle/reservations/run_times.MAX_SAMPLES scheduling/cycle/reservations/run_times.MAX_KINDS
cluster/filters/attach_limits.MOST_KNOWN cluster/filters/volume_offers.MOST_KNOWN web/pace.MOST_REMEMBERED
"""
COUNTED_IN = {
    "cluster/state/term_rotation": "cluster/state/pods",
    "cluster/classes/window": "cluster/classes/waiting_queues",
    "cluster/classes/due": "cluster/classes/due",
    "cluster/classes/cluster_state": "cluster/classes/due",
    "cluster/state/holdings": "cluster/state/holdings",
    "cluster/state/kubelet_refusals": "cluster/state/kubelet_refusals",
    "cluster/state/kept_places": "cluster/state/kept_places",
    "cluster/loop/bind_limits": "cluster/loop/bind_limits",
    "cluster/filters/term_index": "cluster/state/positions",
    "cluster/other_schedulers/gate_limiter": "cluster/other_schedulers/gate_limiter",
    "scheduling/cycle/gangs/tries": "cluster/loop/deciding",
    "kube/writers/pod_messages": "kube/writers/pod_messages",
    "kube/writers/recorder": "kube/writers/pod_messages",
}
"""Modules with a tenant's part of a bound, and which module finds the tenant of a user: they have one part together."""
WITHOUT_USERS = {
    "cluster/state/quotas": "by namespace",
    "cluster/state/volume_plans": "by the tenant of a namespace",
    "kube/client/reviews": "by address",
    "kube/writers/share_reports": "by the tenant of a namespace",
}
SORTED_HERE = tuple(
    frozenset(names.split()) for names in (OF_ONE_OBJECT, OF_ONE_TENANT, OF_NODES_AND_ADMINISTRATORS, MEMORY_OF_ANSWERS)
)


def find_bounds(code: str) -> Iterator[str]:
    """Return the constants of a module that bound how many of something there may be."""
    for node in ast.parse(code).body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and BOUND.fullmatch(target.id) and not TIME.fullmatch(target.id):
                yield target.id


def find_all_bounds() -> set[str]:
    source = ROOT / "operator" / "fairbind"
    files = (path for package in PACKAGES for path in find_files(f"operator/fairbind/{package}/*.py"))
    return {
        f"{path.relative_to(source).with_suffix('').as_posix()}.{name}"
        for path in files
        for name in find_bounds(path.read_text(encoding="utf-8"))
    }


def read_table() -> list[str]:
    """Return the rows of the page's table of what all tenants share."""
    page = (ROOT / "docs" / "reference" / "shared-limits.md").read_text(encoding="utf-8")
    return [line for line in page.splitlines() if "<!-- limits: " in line]


def test_bounds_are_found() -> None:
    code = "MAX_PODS = 3\nMOST: int = 2\nSENT_AT_ONCE = 2\nMAX_REST_SECONDS = 1.0\nDEPTH = 4\nMOST_PLANS: int = 5\n"
    assert list(find_bounds(code)) == ["MAX_PODS", "SENT_AT_ONCE", "MOST_PLANS"]


def test_every_bound_is_sorted_once() -> None:
    named = [name for row in read_table() for name in ROW.findall(row)]
    named += [name for names in SORTED_HERE for name in names]
    assert len(named) == len(set(named))
    assert set(named) == find_all_bounds()


def test_every_row_names_its_test() -> None:
    assert [row for row in read_table() if "<!-- tests/" not in row] == []


def test_the_users_of_a_tenant_have_its_part_together() -> None:
    """A user is a label that pods choose, so what counts by leaf is no bound of a tenant."""
    modules = {name.rpartition(".")[0] for name in OF_ONE_TENANT.split()}
    assert modules <= COUNTED_IN.keys() | WITHOUT_USERS.keys()
    for counting in COUNTED_IN.values():
        code = (ROOT / "operator" / "fairbind" / f"{counting}.py").read_text(encoding="utf-8")
        assert code.count("find_tenant_of_leaf") > 1, counting  # imported, and used
