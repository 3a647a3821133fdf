"""Programs with a beginning and an end: run, waited for, their words returned or shown with the failure."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[4]
LAST_WORDS_LINES = 30
COMMAND_SECONDS = 600.0
"""How long a program may take unless the caller knows better."""
# What would lead a program to another cluster, another configuration or another engine's provider.
FOREIGN = ("KUBE", "HELM_", "KIND_")


class KindError(RuntimeError):
    """The engine, the cluster or a program for it does not do what it should; the message shows its last words."""


def run_command(
    words: Sequence[str | Path],
    *,
    stdin: str = "",
    home: Path | None = None,
    folder: Path = ROOT,
    timeout_seconds: float = COMMAND_SECONDS,
    settings: Mapping[str, str] | None = None,
) -> str:
    """Run a program, wait for it and return what it prints on standard output; raise KindError with its last words.

    home: where it may keep caches and configuration instead of the user's home. settings: more environment variables.
    """
    command = [str(word) for word in words]
    name = " ".join([Path(command[0]).name, *command[1:3]])
    try:
        result = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            cwd=folder,
            env=compute_environment(home, settings),
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise KindError(f"{name} did not end within {timeout_seconds:.0f} s") from error
    except OSError as error:
        raise KindError(f"{name} cannot be started: {error}") from error
    if result.returncode != 0:
        raise KindError(f"{name} failed: {compute_last_words(result.stderr or result.stdout)}")
    return result.stdout


def compute_environment(home: Path | None, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return our environment without what would mislead a program; with a home of its own if one is given."""
    ours = {name: text for name, text in os.environ.items() if not name.startswith(FOREIGN)}
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        ours |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache")}
    return {**ours, **(settings or {})}


def compute_last_words(text: str) -> str:
    """Return the end of what a program printed."""
    return "\n".join(text.strip().splitlines()[-LAST_WORDS_LINES:]) or "no output"
