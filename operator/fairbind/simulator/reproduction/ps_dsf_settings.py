"""Section 6.3 of the PS-DSF paper on other clusters and jobs: does the order of its figures 13 and 14 come out on any?

The counts of servers by class and the demands are ours, so figures 13 and 14 are tried with others: as many servers of
each class, and jobs that mostly ask for memory.
"""

from __future__ import annotations

from typing import Final

from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome, Panel, Series
from fairbind.simulator.reproduction.ps_dsf import HOUR, judge_first, list_use, mean_over_time
from fairbind.simulator.reproduction.ps_dsf_clusters import CLASS_COUNT, GOOGLE, RIVALS, Setting, Variant, get_history

EVEN: Final = (30, 30, 30, 30)
MUCH_MEMORY: Final = 3.0
SETTINGS: Final = {
    "as in figure 14": GOOGLE,
    "memory-heavy jobs": Setting(memory=MUCH_MEMORY),
    "equal classes": Setting(EVEN),
    "both": Setting(EVEN, MUCH_MEMORY),
}
_GROUPS: Final = ("all, cpu", "all, memory", "C and D, cpu", "C and D, memory")


def reproduce_settings(lab: Lab) -> Outcome:
    """Utilisation by PS-DSF, DRFH and TSF where other classes and demands are assumed."""
    seconds = 6 * HOUR if lab.is_full else HOUR / 4
    rows, comparisons, series = [], [], []
    for name, setting in SETTINGS.items():
        means = {variant.name: _measure(lab, variant, seconds, setting) for variant in RIVALS}
        rows += [
            (name, rival, group, use) for rival, uses in means.items() for group, use in zip(_GROUPS, uses, strict=True)
        ]
        said = "; ".join(f"{rival} {', '.join(f'{use:.1%}' for use in uses)}" for rival, uses in means.items())
        series += [Series(f"{rival}, {name}", _GROUPS, uses) for rival, uses in means.items()]
        comparisons.append(
            Comparison(
                "PS-DSF uses more of all, most clearly in classes C and D",
                f"{name}: {said}",
                "jobs are synthetic, and the order depends on what they ask for together",
                judge_first(means),
            )
        )
    return Outcome(
        "ps-dsf-section-6.3",
        "Figures 13 and 14 with other classes and demands",
        f"The cluster of figure 4 and its jobs for {seconds / HOUR:g} h. Equal classes: {EVEN[0]} servers of each in "
        f"place of {', '.join(map(str, CLASS_COUNT))}. Memory-heavy: jobs ask for {MUCH_MEMORY:g} times as much memory "
        f"beside their cpu. Utilisation in this order: {'; '.join(_GROUPS)}.",
        ("setting", "mechanism", "group", "utilisation"),
        rows,
        [Panel("bars", "", "Utilisation", series)],
        comparisons,
    )


def _measure(lab: Lab, variant: Variant, seconds: float, setting: Setting) -> list[float]:
    spells = get_history(lab, variant, seconds, setting).spells
    use_kr = mean_over_time(spells, list_use(spells))
    return [float(use_kr[part, r].mean()) for part in (slice(None), slice(2, None)) for r in (0, 1)]
