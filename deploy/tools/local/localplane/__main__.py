"""The control plane from a terminal: ``python -m localplane tools|up|kubeconfig|status|down``, ...; make calls this."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from localplane import detached
from localplane.failures import ToolError
from localplane.plane import PlaneError
from localplane.tools import FRAMEWORKS, OLDER_KUBERNETES, USUAL, ensure_tools, print_line


def main() -> int:
    """Do what the command line says; return the exit status."""
    parser = argparse.ArgumentParser(prog="localplane", description=__doc__)
    parser.add_argument("--folder", type=Path, default=detached.Home().folder, help="where its files are")
    commands = parser.add_subparsers(dest="command", required=True)
    tools = commands.add_parser("tools", help="build all programs into the cache and say where they are")
    tools.add_argument(
        "--kubernetes", choices=[*OLDER_KUBERNETES], help="with the programs of this older control plane"
    )
    commands.add_parser("framework-tools", help="build the operators of others that make groups of pods")
    up = commands.add_parser("up", help="start a control plane that stays")
    up.add_argument("--nodes", type=parse_count, default=60, metavar="N", help="fake nodes, 60 by default")
    commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    commands.add_parser("status", help="say what runs")
    down = commands.add_parser("down", help="stop it and remove its files")
    down.add_argument("--quiet", action="store_true", help="say nothing when nothing runs")
    commands.add_parser("supervise", help="own the control plane until told to stop (up starts this)")
    try:
        return run(parser.parse_args())
    except (PlaneError, ToolError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(arguments: argparse.Namespace) -> int:
    """Run one command."""
    home = detached.Home(arguments.folder.absolute())
    match arguments.command:
        case "tools":
            tools = ensure_tools(USUAL, kubernetes=arguments.kubernetes)
            print_line("\n".join(str(tools.path(name)) for name in USUAL))
        case "framework-tools":
            tools = ensure_tools(FRAMEWORKS)
            print_line("\n".join(str(tools.path(name)) for name in FRAMEWORKS))
        case "up":
            detached.bring_up(home, arguments.nodes, print_line)
        case "kubeconfig":
            print_line(str(detached.find_kubeconfig(home)))
        case "status":
            print_line("\n".join(detached.describe(home)))
        case "down":
            was_running = detached.take_down(home)
            if was_running or not arguments.quiet:
                print_line("stopped" if was_running else "no control plane runs for this clone")
        case "supervise":
            detached.supervise(home)
    return 0


def parse_count(text: str) -> int:
    """Return a number of nodes that is not negative."""
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("a number of nodes is not negative")
    return count


if __name__ == "__main__":
    sys.exit(main())
