"""The kind cluster from a terminal: ``python -m kindcluster up|down|kubeconfig|image``; make calls this."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fairbind import __version__
from kindcluster import engine, standing
from kindcluster.commands import KindError
from kindcluster.images import build_operator_image
from localplane.failures import ToolError
from localplane.tools import print_line


def main() -> int:
    """Do what the command line says; return the exit status: 2 without an engine."""
    parser = argparse.ArgumentParser(prog="kindcluster", description=__doc__)
    parser.add_argument("--folder", type=Path, default=standing.FOLDER, help="where the cluster's files are")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="make a cluster that stays, with fairbind's image in its nodes")
    commands.add_parser("kubeconfig", help="print the path of the administrator's kubeconfig")
    commands.add_parser("down", help="remove it")
    image = commands.add_parser("image", help="build the operator's image")
    image.add_argument("--tag", default=f"fairbind:{__version__}", help="the image's name")
    try:
        return run(parser.parse_args())
    except engine.NoEngineError as error:
        print(error, file=sys.stderr)
        return 2
    except (KindError, ToolError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def run(arguments: argparse.Namespace) -> int:
    """Run one command."""
    match arguments.command:
        case "up":
            cluster = standing.bring_up(arguments.folder)
            print_line(f"export KUBECONFIG={cluster.kubeconfig}")
        case "kubeconfig":
            cluster = standing.open_standing(arguments.folder)
            if not standing.is_running(cluster):
                raise KindError("no kind cluster runs for this clone: make kind-up")
            print_line(str(cluster.kubeconfig))
        case "down":
            was_there = standing.take_down(arguments.folder)
            print_line("removed" if was_there else "no kind cluster runs for this clone")
        case "image":
            engine.check_engine()
            built = build_operator_image(arguments.tag)
            size = int(engine.docker("image", "inspect", "--format={{.Size}}", built.tag))
            print_line(f"{built.tag}, {size / 1e6:.0f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
