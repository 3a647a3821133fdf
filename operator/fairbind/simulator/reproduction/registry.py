"""Which figures of which papers can be done again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from fairbind.model.errors import InvalidProblemError
from fairbind.simulator.reproduction import (
    drbf,
    drf,
    drf_properties,
    drfh,
    drfh_examples,
    drfh_slots,
    dynamic_drf,
    dynamic_drf_steps,
    ps_dsf,
    ps_dsf_settings,
)
from fairbind.simulator.reproduction.outcome import Lab, Outcome

Reproduce = Callable[[Lab], Outcome]
ALL: Final = "all"


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper. figures: by their number; others as the paper calls them, such as `table-2`."""

    citation: str
    figures: Mapping[str, Reproduce]


PAPERS: Final[Mapping[str, Paper]] = {
    "drf": Paper(
        "Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica: Dominant Resource Fairness, NSDI 2011",
        {
            "3": drf.reproduce_figure_3,
            "table-1": drf.reproduce_table_1,
            "4": drf.reproduce_figure_4,
            "table-2": drf_properties.reproduce_table_2,
            "5": drf_properties.reproduce_figure_5,
            "theorem-2": drf_properties.reproduce_theorem_2,
            "theorem-3": drf_properties.reproduce_theorem_3,
            "6": drf_properties.reproduce_figure_6,
            "section-6.1.2": drf_properties.reproduce_population,
        },
    ),
    "drfh": Paper(
        "Wang, Liang, Li: Multi-Resource Fair Allocation in Heterogeneous Cloud Computing Systems, TPDS 2015",
        {
            "3": drfh_examples.reproduce_figure_3,
            "4": drfh_examples.reproduce_figure_4,
            "proposition-4": drfh_examples.reproduce_proposition_4,
            "5": drfh.reproduce_figure_5,
            "table-2": drfh_slots.reproduce_table_2,
            "6": drfh.reproduce_figure_6,
            "7": drfh.reproduce_figure_7,
            "8": drfh.reproduce_figure_8,
            "9": drfh.reproduce_figure_9,
        },
    ),
    "ps-dsf": Paper(
        "Khamse-Ashari, Lambadaris, Kesidis, Urgaonkar, Zhao: An Efficient and Fair Multi-Resource Allocation "
        "Mechanism for Heterogeneous Servers",
        {
            "1": ps_dsf.reproduce_figure_1,
            "2": ps_dsf.reproduce_figure_2,
            "3": ps_dsf.reproduce_figure_3,
            "6": ps_dsf.reproduce_figure_6,
            "7": ps_dsf.reproduce_figure_7,
            "8": ps_dsf.reproduce_figure_8,
            "9": ps_dsf.reproduce_figure_9,
            "10": ps_dsf.reproduce_figure_10,
            "11": ps_dsf.reproduce_figure_11,
            "12": ps_dsf.reproduce_figure_12,
            "13": ps_dsf.reproduce_figure_13,
            "14": ps_dsf.reproduce_figure_14,
            "section-6.3": ps_dsf_settings.reproduce_settings,
        },
    ),
    "drbf": Paper(
        "Zhao, Du, Chen: A New Multi-Resource Allocation Mechanism, China Communications 2018",
        {
            "3": drbf.reproduce_figure_3,
            "4": drbf.reproduce_figure_4,
            "5": drbf.reproduce_figure_5,
            "6": drbf.reproduce_figure_6,
            "7": drbf.reproduce_figure_7,
            "8": drbf.reproduce_figure_8,
            "table-3": drbf.reproduce_table_3,
            "9": drbf.reproduce_figure_9,
            "10": drbf.reproduce_figure_10,
            "11": drbf.reproduce_figure_11,
            "12": drbf.reproduce_figure_12,
        },
    ),
    "dynamic-drf": Paper(
        "Li, Liu, Zhang, Zhang: A note on dynamic fair division of multiple resources, 2019",
        {
            "1": dynamic_drf.reproduce_times,
            "algorithm-1": dynamic_drf_steps.reproduce_algorithm_1,
            "section-4": dynamic_drf_steps.reproduce_sums,
            "2": dynamic_drf.reproduce_ratio,
        },
    ),
}


def name_outcome(paper: str, figure: str) -> str:
    """Return the name of the files of a figure.

    >>> name_outcome("drfh", "5"), name_outcome("drfh", "table-2")
    ('drfh-figure-5', 'drfh-table-2')
    """
    return f"{paper}-figure-{figure}" if figure.isdigit() else f"{paper}-{figure}"


def find_figures(paper: str, figure: str | None) -> list[tuple[str, Reproduce]]:
    """Return papers and what is to be done, in order. Raises InvalidProblemError for what does not exist.

    >>> [paper for paper, _ in find_figures("drfh", "7")]
    ['drfh']
    >>> find_figures("drhf", None)
    Traceback (most recent call last):
    ...
    fairbind.model.errors.InvalidProblemError: PAPER: there is no paper drhf; did you mean drf?
    """
    known = (*PAPERS, ALL)
    if paper not in known:
        near = get_close_matches(paper, known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
        raise InvalidProblemError(f"PAPER: there is no paper {paper}; {hint}")
    papers = list(PAPERS) if paper == ALL else [paper]
    found = list(_find(papers, figure))
    if not found:
        known_figures = ", ".join(name for each in papers for name in PAPERS[each].figures)
        raise InvalidProblemError(f"--figure: {paper} has no {figure} that is reproduced; it has {known_figures}")
    return found


def _find(papers: list[str], figure: str | None) -> Iterator[tuple[str, Reproduce]]:
    for paper in papers:
        for name, reproduce in PAPERS[paper].figures.items():
            if figure in {None, name}:
                yield paper, reproduce
