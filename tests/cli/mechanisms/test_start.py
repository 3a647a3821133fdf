"""What a command imports decides how fast it answers. Times are measured by the benchmark; here it is counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli.mechanisms.typed import POOL, SERVERS

SLOW = ("scipy", "matplotlib", "kopf", "kubernetes", "aiohttp", "prometheus_client", "yaml", "cvxpy", "fairbind.kube")


def find_slow_imports(folder: Path, *words: str) -> list[str]:
    """Run a command in a process of its own; return what is slow of all that it imported."""
    (folder / "pool.json").write_text(json.dumps(POOL))
    (folder / "servers.json").write_text(json.dumps(SERVERS))
    program = (
        "import sys; from fairbind.cli import main; status = main(sys.argv[1:])\n"
        f"print('|' + ' '.join(sorted(set({SLOW!r}) & set(sys.modules)))); sys.exit(status)"
    )
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.rpartition("|")[2].split()


@pytest.mark.parametrize(
    "command",
    [
        "mechanisms",
        "mechanisms drf",
        "schema problem",
        "allocate pool.json --mechanism drf",
        "allocate pool.json --mechanism drf --output table",
        "allocate servers.json --mechanism drfh",
        "allocate servers.json --mechanism ps-dsf",
        "compare pool.json --mechanism drf --mechanism asset-fairness",
    ],
)
def test_nothing_slow_is_imported(tmp_path: Path, command: str) -> None:
    assert find_slow_imports(tmp_path, *command.split()) == []


@pytest.mark.slow
def test_the_list_of_slow_imports_is_not_empty_by_mistake(tmp_path: Path) -> None:
    (tmp_path / "problem.yaml").write_text(json.dumps(POOL))
    command = "compare problem.yaml --mechanism drf --plot drawn.svg"

    assert {"matplotlib", "yaml"} <= set(find_slow_imports(tmp_path, *command.split()))


def test_declaring_the_commands_needs_no_arrays() -> None:
    program = "import sys; import fairbind.cli; sys.exit('numpy' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], timeout=300, check=False).returncode == 0
