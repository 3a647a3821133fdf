"""How far a state of the cluster is from PS-DSF: equation (58) of Khamse-Ashari et al., for whole tasks that run.

On a server class, a tenant's virtual dominant share is all that it holds, wherever, as a part of the class, over its
weight. In PS-DSF each tenant with tasks on a class has the least of these shares there. A tenant deviates by how much
its share exceeds the least one, relatively, in the mean over the classes in proportion to what it holds on each.

Where tasks differ, the share is of the resource of which the tenant holds most, and what it holds on a class counts by
its dominant share. The least share is of tenants that wait and could run there: who has all that it wants is below
others by its own choice.
"""

from __future__ import annotations

import numpy as np

from fairbind.scheduling.fair_shares.audit import AuditScene


def compute_deviation(scene: AuditScene) -> tuple[float, float] | None:
    """Return the mean over tenants that hold something, by weight, and the largest.

    None where no tenant waits or none holds anything, or where one that waits holds nothing: that is infinitely far.
    """
    if not scene.names:
        return None
    held_nr = scene.bundle_npr.sum(axis=1)
    total_r = scene.capacity_pr.sum(axis=0)
    usable_np = np.array([group.usable_p for group in scene.demand_groups])
    holds_n = (held_nr > 0).any(axis=1)
    waits_np = usable_np & scene.waits_n[:, None]
    if not holds_n.any() or not waits_np.any():
        return None
    part_npr = np.divide(
        (held_nr / scene.weight_nr)[:, None, :],
        scene.capacity_pr,
        out=np.zeros_like(scene.bundle_npr),
        where=scene.capacity_pr > 0,
    )
    share_np = part_npr.max(axis=2)
    least_np = np.minimum(np.where(waits_np, share_np, np.inf).min(axis=0), share_np)
    amount_np = np.divide(scene.bundle_npr, total_r, out=np.zeros_like(scene.bundle_npr), where=total_r > 0).max(axis=2)
    is_there_np = amount_np > 0
    if (is_there_np & (least_np <= 0)).any():
        return None
    excess_np = np.where(is_there_np, share_np / np.where(is_there_np, least_np, 1.0) - 1, 0.0)[holds_n]
    deviation_n = (amount_np[holds_n] * excess_np).sum(axis=1) / amount_np[holds_n].sum(axis=1)
    return float(np.average(deviation_n, weights=scene.weight_n[holds_n])), float(deviation_n.max())
