"""The command `fairbind trace`: from the files of a trace to the document of a scenario."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from fairbind.cli.mechanisms.tables import write_text
from fairbind.model.errors import InvalidProblemError
from fairbind.simulator.traces import bitbrains, dlrm, google2011, openb, own
from fairbind.simulator.traces.compose import Description, compose_scenario, draw_pods
from fairbind.simulator.traces.rows import LeftOut
from fairbind.simulator.traces.tasks import Assumptions, Shape, TraceTask
from fairbind.what_if.reading import NANOSECONDS

WITHOUT_REQUESTS = "google2011"
WITH_GROUPS = "table"


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line says. nodes, pods: format and file. first, until: seconds."""

    kind: str
    tasks: Path
    nodes: tuple[str, Path]
    pods: tuple[str, Path] | None
    usage: Path | None
    has_gpu_parts: bool
    ignored: tuple[str, ...]
    outliving: str
    unknown: str | float
    first: float
    until: float | None
    seed: int
    keeps_groups: bool = False


def write_scenario(request: Request, output: Path | None) -> None:
    """Read the trace, write the scenario, and say what was assumed; on stderr where the scenario goes to stdout.

    Raises InvalidProblemError for a file of another format, and when nothing is left.
    """
    check_request(request)
    left_out: list[LeftOut] = []
    tasks: Iterator[TraceTask] = read_tasks(request.kind, request.tasks, request, left_out)
    if request.pods is not None:
        kind, path = request.pods
        tasks = draw_pods(tasks, [task.pod for task in read_tasks(kind, path, request, left_out)], request.seed)
    if request.ignored:
        tasks = (task._replace(pod=task.pod.without(request.ignored)) for task in tasks)
    shapes = read_shapes(request, left_out)
    last = None if request.until is None else round(request.until * NANOSECONDS)
    first = round(request.first * NANOSECONDS)
    assumptions = Assumptions(request.outliving, request.unknown, first, last, request.keeps_groups)
    scenario = compose_scenario(tasks, shapes, assumptions, describe(request))
    for rows in left_out:
        if rows.count:
            more = f" and {rows.count - len(rows.named):,} more" if rows.count > len(rows.named) else ""
            scenario["notes"].append(f"{rows.count:,} rows of {rows.path.name} were left out")
            click.echo(f"left out: {'; '.join(rows.named)}{more}", err=True)
    text = json.dumps(scenario, allow_nan=False)
    if output is None:
        write_text(text)
    else:
        try:
            output.write_text(f"{text}\n", encoding="utf-8")
        except OSError as error:
            raise InvalidProblemError(f"--out: {output} cannot be written: {error.strerror or error}") from error
    count = sum(len(entry["arrival"]["times"]) for entry in scenario["workload"])
    tenants, entries = len(scenario["tenants"]), len(scenario["workload"])
    click.echo(f"{count:,} tasks of {tenants:,} tenants in {entries:,} workload entries", err=output is None)
    for note in scenario["notes"]:
        click.echo(f"assumed: {note}", err=output is None)


def check_request(request: Request) -> None:
    """Raise InvalidProblemError where options do not go together."""
    if request.kind == WITHOUT_REQUESTS and request.pods is None:
        raise InvalidProblemError("--pods: is missing: a google2011 trace does not say what its jobs ask for")
    if request.usage is not None and "bitbrains" not in {request.kind, request.pods and request.pods[0]}:
        raise InvalidProblemError("--usage: must not stand without a bitbrains trace")
    if request.keeps_groups and request.kind != WITH_GROUPS:
        raise InvalidProblemError(f"--gangs: must not stand beside {request.kind}, which names no groups of tasks")
    if request.until is not None and request.until <= request.first:
        raise InvalidProblemError(f"--until: must be above --from, {request.first:g}, not {request.until:g}")


def read_tasks(kind: str, path: Path, request: Request, left_out: list[LeftOut]) -> Iterator[TraceTask]:
    """Return the tasks of a file; rows that are left out go to a new entry of the list."""
    rows = LeftOut(path)
    left_out.append(rows)
    match kind:
        case "openb":
            return openb.read_tasks(path, rows, has_parts=request.has_gpu_parts)
        case "dlrm":
            return dlrm.read_tasks(path, rows)
        case "google2011":
            return google2011.read_tasks(path, rows)
        case "bitbrains":
            return bitbrains.read_tasks(path, rows, usage=request.usage)
        case _:
            return own.read_tasks(path, rows)


def read_shapes(request: Request, left_out: list[LeftOut]) -> dict[Shape, int]:
    """Return the nodes; left_out: as above."""
    kind, path = request.nodes
    rows = LeftOut(path)
    left_out.append(rows)
    if kind == "openb":
        return openb.read_shapes(path, rows, has_parts=request.has_gpu_parts)
    return own.read_shapes(path, rows)


def describe(request: Request) -> Description:
    """Return what outputs say of the sources."""
    tasks = f"{request.kind} ({request.tasks.name})"
    parts = [f"tasks of {tasks}"]
    if request.pods is not None:
        kind, path = request.pods
        parts = [f"arrivals and run times of {tasks}", f"requests drawn from {kind} ({path.name}, seed {request.seed})"]
    kind, path = request.nodes
    if request.pods is not None or kind != request.kind:
        parts.append(f"nodes of {kind} ({path.name})")
    composite = ", ".join(parts) if len(parts) > 1 else None
    notes = list(describe_choices(request))
    return Description(f"{'composite with ' if composite else ''}{request.kind}", composite, notes)


def describe_choices(request: Request) -> Iterator[str]:
    """Yield what a format makes necessary to assume, whatever its rows say."""
    kinds = {request.kind, request.pods[0] if request.pods is not None else ""}
    if request.kind == "openb":
        yield "the class of service stands for the tenant, which openb does not name"
    if "openb" in kinds and request.has_gpu_parts:
        yield "GPUs are thousandths of all of a node's: a pod may get parts of several"
    elif "openb" in kinds:
        yield "a part of a GPU counts as a whole one"
    if "dlrm" in kinds:
        yield "max_instance_per_node is not kept"
    if request.kind == "bitbrains":
        yield "all machines are one tenant's, which Bitbrains does not name"
    if request.usage is not None:
        yield "a machine asks for as much CPU as it ever used"
    if request.kind == "google2011":
        yield "a job is one task"
    for resource in request.ignored:
        yield f"{resource} is not kept"
