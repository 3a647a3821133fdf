"""Holdings: what a tenant holds, as the exact mechanisms and the audit are told of it.

They are told kind by kind: how many pods of equal demand and equal constraints there are. To pose their questions costs
some ten microseconds a kind, during which nothing is decided, and a tenant can make each of its pods another kind. So
no more than some thousands of kinds are told apart, of each Tenant as many, those with most pods; of the rest of its
kinds a tenant tells one for each set of resources that they ask for, with the average demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from fairbind.cluster.objects.facts import Constraints, Demand
from fairbind.cluster.state.node_state import Axes, add_amounts, compute_vector
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import Placement
from fairbind.model.tenants import Holding

BoundKind = tuple[Demand, Constraints]
"""What makes two held pods of a tenant the same to a mechanism. Where a pod is pinned to is no part of it."""

MAX_KINDS = 4_000
"""So many kinds are told apart at most, in all tenants together."""
MAX_BOUND_PLACEMENTS = 64
"""Of so many different constraints of held pods it is found out where such pods could run, of each tenant the most
frequent first: each pair of them may set two nodes apart."""

FindPlacement = Callable[[Constraints], Placement | None]


def find_tenants_part(sizes: Iterable[int], most: int = MAX_KINDS) -> int:
    """Return how many kinds each tenant may tell apart, so that all together tell at most `most`, or one each.

    sizes: how many each tenant has; what one does not need is divided among the others.

    >>> find_tenants_part([1, 2, 9, 9], most=9), find_tenants_part([1, 2], most=9)
    (3, 9)
    """
    ascending, left = sorted(sizes), most
    for n, size in enumerate(ascending):
        equal = left // (len(ascending) - n)
        if size > equal:
            return max(equal, 1)
        left -= size
    return most


def find_parts(sizes: Mapping[str, int], most: int = MAX_KINDS) -> tuple[int, dict[str, int]]:
    """Return how many kinds each tenant may tell apart, and each user of those whose users must divide that.

    sizes: how many each leaf has.

    >>> find_parts({"va@a": 3, "vb@a": 3, "b": 9, "c": 2}, most=9)
    (3, {'a': 1})
    """
    sizes_of: dict[str, list[int]] = {}
    for leaf, size in sizes.items():
        sizes_of.setdefault(find_tenant_of_leaf(leaf), []).append(size)
    part = find_tenants_part(map(sum, sizes_of.values()), most)
    divided = {tenant: own for tenant, own in sizes_of.items() if len(own) > 1 and sum(own) > part}
    return part, {tenant: find_tenants_part(own, part) for tenant, own in divided.items()}


def choose_bound_placements(leaves: Mapping[str, Mapping[BoundKind, int]]) -> list[Constraints]:
    """Return the constraints that most pods of a tenant have, then the second of each tenant, and so on.

    leaves: how many pods of each kind each of them has; users of a tenant have one turn together.
    """
    places: dict[Constraints, tuple[int, int]] = {}
    frequent_of: dict[str, Counter[Constraints]] = {}
    for leaf, kinds in leaves.items():
        frequent = frequent_of.setdefault(find_tenant_of_leaf(leaf), Counter())
        for (_, constraints), count in kinds.items():
            frequent[constraints] += count
    for frequent in frequent_of.values():
        for rank, (constraints, count) in enumerate(frequent.most_common(MAX_BOUND_PLACEMENTS)):
            place = rank, -count
            places[constraints] = min(places.get(constraints, place), place)
    return sorted(places, key=places.__getitem__)[:MAX_BOUND_PLACEMENTS]


def build_holdings(
    kinds: Mapping[BoundKind, int], axes: Axes, get_placement: FindPlacement, part: int = MAX_KINDS
) -> tuple[Holding, ...]:
    """Return a tenant's holdings. part: so many kinds are told apart at most, the others as averages."""
    counts = sorted(kinds.values(), reverse=True)
    least_count = counts[part] + 1 if len(counts) > part else 1
    told = [
        Holding(compute_vector(demand.held, axes), compute_vector(demand.share, axes), count, get_placement(place))
        for (demand, place), count in kinds.items()
        if count >= least_count
    ]
    if len(told) < len(kinds):
        told.extend(_average({kind: count for kind, count in kinds.items() if count < least_count}, axes))
    return tuple(told)


class _Sum:
    """What several kinds ask for together. real, share: of all their pods."""

    def __init__(self) -> None:
        self.real: dict[str, int] = {}
        self.share: dict[str, int] = {}
        self.count = 0


def _average(kinds: Mapping[BoundKind, int], axes: Axes) -> Iterable[Holding]:
    """Return a holding for each set of resources that the kinds ask for; where such a task could run is unknown."""
    sums: dict[tuple[str, ...], _Sum] = {}
    for (demand, _), count in kinds.items():
        total = sums.setdefault(tuple(resource for resource, _ in demand.share), _Sum())
        add_amounts(total.real, demand.held, count)
        add_amounts(total.share, demand.share, count)
        total.count += count
    for _, total in sorted(sums.items()):
        # Rounded up, so that nothing is left that would look like one more task.
        real_r, share_r = (
            tuple(-(-amount // total.count) for amount in compute_vector(tuple(amounts.items()), axes))
            for amounts in (total.real, total.share)
        )
        yield Holding(real_r, share_r, total.count)
