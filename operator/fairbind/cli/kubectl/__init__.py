"""The program `kubectl-fairbind`, which kubectl runs as `kubectl fairbind`.

`top` and `why` are its own; `audit` and `what-if` are the commands of `fairbind`, with options named as kubectl does.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Final

import click

from fairbind import __version__
from fairbind.cli import commands as fairbind_commands
from fairbind.cli.impersonation import impersonation_options
from fairbind.cli.kubectl.command_options import operator_namespace_option, scope_options
from fairbind.cli.options import gather_run_times, run_time_option
from fairbind.cli.program import run_program

NAME: Final = "kubectl fairbind"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name=NAME, message="%(prog)s %(version)s")
def commands() -> None:
    """Say who holds what of a cluster that fairbind shares, and why a pod waits."""


@commands.command(
    short_help="Show each tenant's share: held, fair, wanted.",
    epilog="\b\nExamples:\n  $ kubectl fairbind top\n  $ kubectl fairbind top -n team-a -o yaml",
)
@scope_options
def top(*, output: str, **given: Any) -> None:
    """Show what each tenant holds, what would be fair, what it wants, and how long its oldest pod waits.

    Shares are dominant shares: the largest part of any resource of the cluster. With -n only the tenant of that
    namespace is shown. It lists pods, nodes and what else the operator reads; neither operator nor CRDs are needed.
    Where you may not list them, it shows what the namespace's ShareReport says, or with -A what all of them say.
    """
    from fairbind.cli.kubectl.scope import make_scope  # noqa: PLC0415 - numpy and what speaks to clusters
    from fairbind.cli.kubectl.top_answer import print_top  # noqa: PLC0415 - as above

    print_top(make_scope("top", **given), output)


@commands.command(
    short_help="Say why a pod or the pods of a Job wait.",
    epilog="\b\nExamples:\n  $ kubectl fairbind why train-9zn7d\n  $ kubectl fairbind why job/train -n team-a",
)
@click.argument("target", metavar="[POD|KIND/NAME]", required=False)
@scope_options
@run_time_option
@click.option(
    "--estimate", is_flag=True, help="Estimate when the pods start, from known run times; it may take a minute."
)
def why(*, target: str | None, output: str, run_times: Sequence[tuple[str, str]], estimate: bool, **given: Any) -> None:
    """Say why pods wait: nodes by reason, which tenants and pods come first and why, and what would help.

    POD is a pod's name, or the name of a Job or another controller of pods; KIND/NAME says which (job/train). Without
    it all pods of the namespace that wait are explained. Equal pods are explained once. What is said is what fairbind
    decides about the cluster as it is now; nothing is written to it. Where you may not list the cluster, it shows what
    the pods' conditions and the namespace's ShareReport say.
    """
    from fairbind.cli.kubectl.scope import make_scope  # noqa: PLC0415 - numpy and what speaks to clusters
    from fairbind.cli.kubectl.why_text import print_why  # noqa: PLC0415 - as above

    known = gather_run_times(run_times) if estimate or run_times else None
    print_why(make_scope("why", **given), target, known, output)


@click.command()
@operator_namespace_option
@impersonation_options
def _more() -> None: ...


def _adapt(name: str) -> click.Command:
    """Return a command of `fairbind` with kubectl's words: its --namespace is the operator's."""
    command = copy(fairbind_commands.commands[name])
    operator_namespace, *impersonation = map(copy, _more.params)
    operator_namespace.name = "namespace"
    params = [operator_namespace if each.name == "namespace" else each for each in command.params]
    command.params = [*params[:-1], *impersonation, params[-1]]
    command.epilog = (command.epilog or "").replace("$ fairbind ", f"$ {NAME} ")
    return command


for _name in ("what-if", "audit"):
    commands.add_command(_adapt(_name))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status, see `run_program`."""
    return run_program(commands, NAME, arguments)
