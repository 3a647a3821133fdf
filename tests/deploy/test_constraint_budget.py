"""The chart's admission policy refuses what the operator does not honour: the same counts, written in two languages."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from fairbind.cluster.objects import budget

TEMPLATES = Path(__file__).parents[2] / "charts" / "fairbind" / "templates"


def test_the_chart_has_the_numbers_of_the_operator() -> None:
    text = (TEMPLATES / "_admission.tpl").read_text(encoding="utf-8")
    match = re.search(r'define "fairbind.constraintBudget" -}}\n(.*?){{- end }}', text, re.DOTALL)

    assert match is not None
    assert yaml.safe_load(match[1]) == {
        "selectorLabels": budget.MAX_SELECTOR_LABELS,
        "tolerations": budget.MAX_TOLERATIONS,
        "labels": budget.MAX_LABELS,
        "nodeTerms": budget.MAX_NODE_TERMS,
        "nodeExpressions": budget.MAX_NODE_EXPRESSIONS,
        "nodeValues": budget.MAX_NODE_VALUES,
        "hostPorts": budget.MAX_HOST_PORTS,
        "podTerms": budget.MAX_POD_TERMS,
    }


def test_the_policy_has_no_number_of_its_own() -> None:
    text = (TEMPLATES / "admission-constraints.yaml").read_text(encoding="utf-8")

    assert re.findall(r"(?:<=|> |than) ?(\d+)", text.replace("> 0", "")) == []
    assert set(re.findall(r"\$budget\.(\w+)", text)) == {
        "selectorLabels",
        "tolerations",
        "labels",
        "nodeTerms",
        "nodeExpressions",
        "nodeValues",
        "hostPorts",
        "podTerms",
    }
