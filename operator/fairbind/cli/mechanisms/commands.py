"""What the commands of the exact library are called and take. What they do is imported when one runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import click

from fairbind.cli.completion import FILE, complete_mechanisms, complete_properties
from fairbind.cli.exit_status import EXIT_FAILURE
from fairbind.cli.options import Command, debug_option, output_option

DEFAULT_SEED: Final = 0
PICTURES: Final = (".png", ".svg")


def _example(command: str) -> str:
    """Return the end of a command's help; a test runs every one of them."""
    return f"\b\nExample:\n  $ {command}"


class Alpha(click.ParamType[float]):
    """A number as in a problem: no NaN, no infinity, and one that the mechanism takes."""

    name = "number"
    _number = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", re.ASCII)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number or fail as the command line's errors do."""
        from fairbind.cli.mechanisms.out_of_range_numbers import read_float  # noqa: PLC0415 - so does what follows
        from fairbind.fairness.problems.fields import show_value  # noqa: PLC0415 - needs numpy
        from fairbind.fairness.problems.parse import MAX_MAGNITUDE  # noqa: PLC0415 - needs numpy
        from fairbind.model.policy import LEAST_ALPHA  # noqa: PLC0415 - the same

        number = read_float(value) if self._number.fullmatch(value) else None
        if number is None or not LEAST_ALPHA <= number <= MAX_MAGNITUDE:
            self.fail(
                f"must be a number from {LEAST_ALPHA:g} to {MAX_MAGNITUDE:g}, not {show_value(value)}", param, ctx
            )
        return number


class Seed(click.ParamType[int]):
    """A whole number from 0."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number or fail as the command line's errors do."""
        if isinstance(value, int):
            return value
        if not re.fullmatch(r"\d{1,100}", value, re.ASCII):
            from fairbind.fairness.problems.fields import show_value  # noqa: PLC0415 - needs numpy

            self.fail(f"must be a whole number from 0, not {show_value(value)}", param, ctx)
        return int(value)


def _check_picture(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse what could not be written before anything is solved."""
    if path is None:
        return None
    if path.suffix.lower() not in PICTURES:
        raise click.BadParameter(f"{str(path)!r} must end in {' or '.join(PICTURES)}")
    if not path.parent.is_dir():
        raise click.BadParameter(f"{str(path.parent)!r} must be a folder that exists")
    if path.is_dir():
        raise click.BadParameter(f"{str(path)!r} must be a file, but is a folder")
    return path


def _take_problem(command: Command) -> Command:
    """Add what every command takes that solves a problem."""
    for add in (
        debug_option,
        click.option("--pool", is_flag=True, help='Treat all servers as one, as "pool": true in the problem does.'),
        click.option(
            "--alpha",
            type=Alpha(),
            help="Use this exponent for alpha-pf-vds on the servers that name none themselves, from 0.01 on.  "
            "[default: 2]",
        ),
        click.argument("problem", type=FILE),
    ):
        command = add(command)
    return command


_mechanism_option = click.option(
    "--mechanism",
    metavar="ID",
    required=True,
    shell_complete=complete_mechanisms,
    help="Divide by this mechanism, one that `fairbind mechanisms` lists.",
)


@click.command(
    short_help="Divide servers between tenants, by one mechanism.",
    epilog=_example("fairbind allocate problem.json --mechanism drf --output table"),
)
@_mechanism_option
@output_option("json", "table", "yaml", "csv")
@click.option(
    "--certificate",
    is_flag=True,
    help="Add prices, levels or multipliers, with which others can check the answer again (JSON and YAML).",
)
@click.option(
    "--solver",
    metavar="ID",
    help="Use a published iteration in place of the exact solver: ps-mfa or distributed, of alpha-pf-vds. It reports "
    "its iterations and merit.",
)
@_take_problem
def allocate(
    problem: str,
    mechanism: str,
    alpha: float | None,
    output: str,
    solver: str | None,
    *,
    certificate: bool,
    pool: bool,
) -> None:
    """Divide the servers of PROBLEM between its tenants, by one mechanism.

    PROBLEM is a JSON or YAML file, or - for standard input; `fairbind schema problem` describes it. The answer says
    how many tasks each tenant runs on each server entry, as fractions of a task, and comes with a certificate that
    was checked. An option that the mechanism does not take is refused.
    """
    from fairbind.cli.mechanisms.allocate import compute_text  # noqa: PLC0415 - numpy and the mechanisms
    from fairbind.cli.mechanisms.tables import write_text  # noqa: PLC0415 - only with an answer

    text = compute_text(problem, mechanism, alpha=alpha, pools=pool, output=output, proves=certificate, solver=solver)
    write_text(text)


@click.command(
    short_help="Look for witnesses against the properties of an allocation.",
    epilog=_example("fairbind check problem.json --mechanism drf --property envy-freeness"),
)
@_mechanism_option
@click.option(
    "--property",
    "properties",
    metavar="NAME",
    multiple=True,
    shell_complete=complete_properties,
    help="Check only this property. May be repeated.",
)
@click.option(
    "--seed",
    metavar="NUMBER",
    type=Seed(),
    default=DEFAULT_SEED,
    show_default=True,
    help="Search for lies that pay from this whole number, from 0: the same one tries the same.",
)
@click.option(
    "--allocation",
    metavar="FILE",
    type=FILE,
    help="Judge this allocation instead of the mechanism's: JSON or YAML as `allocate` prints it, or CSV with the "
    "columns tenant, server and tasks.",
)
@click.option(
    "--tolerance",
    metavar="NUMBER",
    type=click.FloatRange(0, 1),
    default=1e-6,
    show_default=True,
    help="Count so much of what is allowed, or of what a tenant has, as rounding. With --allocation.",
)
@click.option(
    "--exit-code",
    "says_by_status",
    is_flag=True,
    help="End with 1 if a property is violated, or with --allocation a condition of the mechanism; otherwise with 0.",
)
@output_option("table", "json", "yaml")
@_take_problem
def check(
    problem: str,
    mechanism: str,
    properties: tuple[str, ...],
    seed: int,
    allocation: str | None,
    tolerance: float,
    alpha: float | None,
    output: str,
    *,
    says_by_status: bool,
    pool: bool,
) -> int | None:
    """Say which properties the mechanism's answer to PROBLEM has, and who could complain where it has not.

    One line a property: whether it holds here, whether that was to be expected, and the witness: who envies
    whom and by how much, which allocation would be better for all, which lie pays.

    With --allocation an allocation computed elsewhere is judged: which condition of the mechanism it does not
    meet, for which tenant, on which server, and by how much.

    The exit status is 0 whatever is found, but 1 if a property is violated that is proved for such problems: that would
    be an error in fairbind. With --exit-code it is 1 if anything asked for is violated. With --allocation, properties
    that the mechanism's own answer need not have do not count, only its conditions.
    """
    from fairbind.cli.mechanisms.check import compute_findings  # noqa: PLC0415 - numpy and the mechanisms
    from fairbind.cli.mechanisms.tables import write_text  # noqa: PLC0415 - only with an answer

    if allocation is not None:
        if properties:
            raise click.UsageError("--property must be left out beside --allocation, which is judged by all of them")
        from fairbind.cli.mechanisms.judging import judge_file, show_judgement  # noqa: PLC0415 - only for this option

        judgement, witnesses = judge_file(problem, allocation, mechanism, alpha=alpha, pools=pool, tolerance=tolerance)
        write_text(show_judgement(judgement, witnesses, output))
        return EXIT_FAILURE if says_by_status and judgement.violations else None
    findings = compute_findings(problem, mechanism, properties, alpha=alpha, pools=pool, seed=seed)
    write_text(findings.to_lines() if output == "table" else findings.to_text(output))
    findings.check_proofs()
    return EXIT_FAILURE if says_by_status and findings.is_any_violated else None


@click.command(
    short_help="Show all mechanisms side by side.",
    epilog=_example("fairbind compare problem.json --mechanism drf --mechanism ceei"),
)
@click.option(
    "--mechanism",
    "mechanisms",
    metavar="ID",
    multiple=True,
    shell_complete=complete_mechanisms,
    help="Compare only this mechanism. May be repeated. Without it: all that can solve the problem.",
)
@click.option(
    "--plot",
    metavar="FILE.png|svg",
    type=click.Path(path_type=Path),
    callback=_check_picture,
    help="Draw the shares of each tenant, of all servers and of each entry. Needs the extra `plot`.",
)
@output_option("table", "json", "yaml")
@_take_problem
def compare(
    problem: str, mechanisms: tuple[str, ...], plot: Path | None, alpha: float | None, output: str, *, pool: bool
) -> None:
    """Show what each mechanism does with PROBLEM, side by side.

    Dominant shares and tasks of each tenant, how much of each resource is used, the sum and the minimum of the shares
    and Jain's index of how even they are, and which properties hold here. Those that cannot solve the problem are
    named with the reason.
    """
    from fairbind.cli.mechanisms.compare import compute_comparison  # noqa: PLC0415 - numpy and the mechanisms
    from fairbind.cli.mechanisms.tables import write_text  # noqa: PLC0415 - only with an answer

    if plot is not None:
        from fairbind.cli.mechanisms.plot import check_can_draw  # noqa: PLC0415 - needs an extra

        check_can_draw()
    comparison = compute_comparison(problem, mechanisms, alpha=alpha, pools=pool)
    if plot is not None:
        from fairbind.cli.mechanisms.plot import draw  # noqa: PLC0415 - needs an extra

        draw(comparison.allocations, plot, [*comparison.refused, *comparison.failed])
    write_text(comparison.to_text(output))
    comparison.check_failures()


@click.command(short_help="List the mechanisms, or tell the story of one.", epilog=_example("fairbind mechanisms drf"))
@click.argument("mechanism", metavar="[ID]", required=False, shell_complete=complete_mechanisms)
@output_option("table", "json", "yaml")
@debug_option
def mechanisms(mechanism: str | None, output: str) -> None:
    """List the mechanisms, or tell what one does, where it comes from and what it guarantees."""
    from fairbind.cli.mechanisms.describe import compute_list, compute_story  # noqa: PLC0415 - numpy and the mechanisms
    from fairbind.cli.mechanisms.tables import write_text  # noqa: PLC0415 - only with an answer

    write_text(compute_list(output) if mechanism is None else compute_story(mechanism, output))


@click.command(short_help="Print a JSON Schema.", epilog=_example("fairbind schema problem"))
@click.argument("of", metavar="problem|scenario|sweep", type=click.Choice(["problem", "scenario", "sweep"]))
@output_option("json", "yaml")
@debug_option
def schema(of: str, output: str) -> None:
    """Print the JSON Schema (2020-12) of the problems, scenarios or sweeps that the other commands read."""
    from fairbind.cli.mechanisms.schema import compute_schema  # noqa: PLC0415 - only this command needs it
    from fairbind.cli.mechanisms.tables import write_text  # noqa: PLC0415 - only with an answer

    write_text(compute_schema(of, output))


COMMANDS: Final = (allocate, check, compare, mechanisms, schema)
