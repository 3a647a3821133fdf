"""Pictures of how things hang together: the way of a pod, and which policy suits which cluster."""

from __future__ import annotations

from fairbind.what_if.advice import BY_CLASSES, BY_TOTALS
from pictures.svg import CHOICE, GREY, PALE, SUPPLY, Picture


def draw_way_of_a_pod() -> str:
    """Return the way of a pod from its creation to its node."""
    picture = Picture(860, 300, "The way of a pod: created, seen, decided in a cycle, bound, run")
    steps = (
        (("1 Created", "schedulerName", "is fairbind"), "API server"),
        (("2 Seen", "its tenant, requests", "and eligible nodes", "are known"), "watch and cache"),
        (("3 Decided", "whose pod is next,", "which node is best"), "cycle on a snapshot"),
        (("4 Bound", "if the lease is", "surely ours"), "binder behind the fence"),
        (("5 Runs", "counts in the", "tenant's share", "until it ends"), "kubelet"),
    )
    width, gap, top, height = 140.0, 26.0, 56.0, 92.0
    for number, (lines, part) in enumerate(steps):
        left = 26.0 + number * (width + gap)
        picture.box((left, top), (width, height), lines, fill=SUPPLY)
        picture.text((left + width / 2, top - 12), part, size=12, fill=GREY, anchor="middle")
        if number:
            picture.arrow([(left - gap, top + height / 2), (left, top + height / 2)])
    decided = 26.0 + 2 * (width + gap) + width / 2
    picture.box(
        (decided - 210, 204),
        (420, 66),
        ("Waits", "its condition says why, in kube-scheduler's words,", "and which tenant is next"),
        fill=PALE,
    )
    picture.arrow([(decided + 30, top + height), (decided + 30, 204)])
    picture.text((decided + 38, 182), "nothing fits, or another tenant is next", size=12, fill=GREY)
    picture.arrow([(decided - 30, 204), (decided - 30, top + height)])
    picture.text((decided - 38, 182), "a change: tried again", size=12, fill=GREY, anchor="end")
    return picture.render()


def draw_decision_tree() -> str:
    """Return questions that lead to a policy; where shares of totals matter, `fairbind advise` answers."""
    picture = Picture(860, 470, "Which policy for my cluster? A decision tree")
    rows = (
        (("Should shares follow weights?", "or only priority and age count"), "no", "yes", ("`fifo`", "no fairness")),
        (
            ("Do shares of totals hurt a tenant?", "the command fairbind advise names it"),
            "yes",
            "no",
            (f"`{BY_CLASSES}`", "fair on each class of nodes"),
        ),
        (
            ("Should something else be equal?", "not the dominant resource"),
            "yes",
            "no",
            ("`tsf` or `asset-fairness`", "numbers of pods, or sums of all resources"),
        ),
        (
            ("Must nodes be chosen specially?", "in the order of names, or spread"),
            "yes",
            "no",
            ("`first-fit-drfh` or `two-choices-drfh`", "by name, or the better of two"),
        ),
    )
    left, width, height, step = 60.0, 300.0, 58.0, 92.0
    for number, (question, aside, down, policy) in enumerate(rows):
        top = 24.0 + number * step
        middle = top + height / 2
        picture.box((left, top), (width, height), question, fill=CHOICE)
        picture.arrow([(left + width, middle), (left + width + 130, middle)])
        picture.text((left + width + 60, middle - 8), aside, size=12, fill=GREY, anchor="middle")
        picture.box((left + width + 130, top), (320, height), policy, fill=SUPPLY)
        below = top + step
        picture.arrow([(left + width / 2, top + height), (left + width / 2, below)])
        picture.text((left + width / 2 + 10, below - 12), down, size=12, fill=GREY)
    bottom = 24.0 + len(rows) * step
    picture.box((left, bottom), (width, 58), (f"`{BY_TOTALS}`", "the default: shares of totals, best fit"), fill=SUPPLY)
    return picture.render()
