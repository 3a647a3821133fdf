"""One run of a program: its command, its exit status, and its errors as one line on stderr.

Exit status 2: what was typed, the problem or the kubeconfig is invalid. 1: it failed while it ran. A traceback only
with --debug.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

import click

from fairbind.cli.exit_status import EXIT_BAD_INPUT, EXIT_FAILURE, EXIT_INTERRUPTED
from fairbind.cli.standard_output import drop_unwritten_output, reserve_standard_output


def run_program(commands: click.Group, name: str, arguments: Sequence[str] | None) -> int:
    """Run one of the commands and return the exit status. name: what users type.

    arguments: None means those of the process, whose standard output is then for the command's answer alone.
    """
    if arguments is not None:
        return _run(commands, name, list(arguments))
    reserve_standard_output()
    status = _run(commands, name, sys.argv[1:])
    drop_unwritten_output()
    return status


def _run(commands: click.Group, name: str, words: list[str]) -> int:
    try:
        result = commands.main(words, prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return EXIT_BAD_INPUT
    except click.ClickException as error:
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else name
        return _fail(name, f"{' '.join(error.format_message().split())} (try '{command} --help')", EXIT_BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last one to say in a line what went wrong
        return _report_failure(name, error, shows_traceback="--debug" in words)
    return result if isinstance(result, int) else 0


def _report_failure(name: str, error: Exception, *, shows_traceback: bool) -> int:
    from fairbind.kube.client.errors import PermanentClusterError  # noqa: PLC0415 - only failures need it
    from fairbind.model.errors import FairbindError, InvalidProblemError  # noqa: PLC0415

    if shows_traceback:
        traceback.print_exception(error)
    if isinstance(error, PermanentClusterError | InvalidProblemError):
        return _fail(name, str(error), EXIT_BAD_INPUT)
    if isinstance(error, FairbindError):
        return _fail(name, str(error), EXIT_FAILURE)
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("fairbind."):
        missing = f"the operator's image has no {error.name}"
        return _fail(
            name, f"{missing}: install the wheel for simulations and research (pip install fairbind)", EXIT_FAILURE
        )
    if isinstance(error, OSError) and error.strerror:  # a full disk below the output, say
        where = "" if error.filename is None else f": {error.filename}"
        return _fail(name, f"{error.strerror}{where}", EXIT_FAILURE)
    hint = "" if shows_traceback else " (a bug; --debug shows where)"
    return _fail(name, f"{type(error).__name__}: {error}{hint}", EXIT_FAILURE)


def _fail(name: str, message: str, status: int) -> int:
    click.echo(f"{name}: {message}", err=True)
    return status
