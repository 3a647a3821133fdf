"""The page on adding a policy: its commands, as written, in an environment of their own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import fairbind
from cli.test_tutorial import find_block

PAGE = Path(__file__).resolve().parents[2] / "docs" / "add-a-policy.md"
MOST_LINES = 40
COMMAND = '#!/bin/sh\nexec python -m fairbind "$@"\n'


def save_files(text: str, folder: Path) -> None:
    for name, content in re.findall(r"Save this as `([^`]+)`.*?```\w+\n(.*?)```", text, re.DOTALL):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, encoding="utf-8")


def make_environment(folder: Path) -> dict[str, str]:
    """Make a Python environment in which fairbind and pip are, and return the variables of a shell that uses it."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    # A wheel is tested in an environment that takes its packages from another one, so one folder would not do.
    shared = [str(Path(fairbind.__file__).parents[1]), *(path for path in sys.path if path.endswith("-packages"))]
    (site / "shared.pth").write_text("\n".join(shared), encoding="utf-8")
    command = folder / "bin" / "fairbind"
    command.write_text(COMMAND, encoding="utf-8")
    command.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "COV_"))}
    # Setuptools is in the shared packages already; nothing comes from an index and nothing is kept for later.
    offline = {"PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_INDEX": "1", "PIP_NO_CACHE_DIR": "1"}
    return {**kept, **offline, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.slow
def test_the_pages_commands_install_and_simulate_a_rule(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    save_files(text, tmp_path)
    (tmp_path / "late-tenant.yaml").write_text(find_block("yaml"), encoding="utf-8")
    environment = make_environment(tmp_path / "environment")
    (commands,) = re.findall(r"```console\n(.*?)```", text, re.DOTALL)

    outputs = []
    for line in commands.splitlines():
        assert line.startswith("$ ")
        done = subprocess.run(
            shlex.split(line.removeprefix("$ ")),
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    rows = [line.split() for line in outputs[-1].splitlines()[3:]]

    assert [row[0] for row in rows] == ["smallest-bill", "best-fit-drfh"]
    assert rows[0][1:] != rows[1][1:], "the rule decides otherwise"
    assert "-" in rows[0], "no share error, as the page says"


def test_the_page_can_be_read_in_a_minute() -> None:
    assert len(PAGE.read_text(encoding="utf-8").splitlines()) <= MOST_LINES
