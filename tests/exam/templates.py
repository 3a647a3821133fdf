"""What Kubernetes' scheduler_perf needs of Go's text/template: a name, or a function of two numbers, per action.

>>> render("name: node-{{ .Index }}, group: {{DivideInt .Index 10}}", {"Index": 23})
'name: node-23, group: 2'
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

ACTION = re.compile(r"\{\{-?\s*(.*?)\s*-?\}\}")
FUNCTIONS: Mapping[str, Callable[[int, int], int]] = {
    "AddInt": operator.add,
    "SubtractInt": operator.sub,
    "MultiplyInt": operator.mul,
    "DivideInt": operator.floordiv,
    "Mod": operator.mod,
}


class TemplateError(ValueError):
    """A template asks for more than this; its case cannot be played."""


def render(text: str, values: Mapping[str, int | str]) -> str:
    """Return a template with its actions replaced. values: by name, without the dot."""
    return ACTION.sub(lambda match: str(_evaluate(match[1], values)), text)


def _evaluate(action: str, values: Mapping[str, int | str]) -> int | str:
    first, *arguments = action.split()
    if not arguments:
        return _find(first, values)
    if first not in FUNCTIONS or len(arguments) != 2:
        raise TemplateError(f"{action!r} is not understood")
    left, right = (int(_find(argument, values)) for argument in arguments)
    return FUNCTIONS[first](left, right)


def _find(word: str, values: Mapping[str, int | str]) -> int | str:
    if word.removeprefix("-").isdigit():
        return int(word)
    name = word.removeprefix(".")
    if name == word or name not in values:
        raise TemplateError(f"{word!r} is not understood")
    return values[name]
