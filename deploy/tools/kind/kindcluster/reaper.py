"""Removes a cluster when its maker is gone: ``python -m kindcluster.reaper KIND CLUSTER FOLDER PAUSE_SECONDS``.

Containers belong to the engine, so they outlive a process that was killed. This process reads its standard input, a
pipe that the maker holds open and writes to when the cluster was removed in good order. An end of input without that
word means that the maker died; then the cluster and its folder are removed here. It ignores what a terminal sends.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

ALL_IS_DONE = b"done\n"
ATTEMPTS = 3


def main() -> int:
    """Wait for the maker's word or its end; return the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    kind, cluster, folder, pause_seconds = sys.argv[1:]
    if sys.stdin.buffer.readline() == ALL_IS_DONE:
        return 0
    command = [kind, "delete", "cluster", f"--name={cluster}", f"--kubeconfig={folder}/kubeconfig"]
    is_gone = False
    for _ in range(ATTEMPTS):  # what the maker had asked the engine for may still appear
        outcome = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        is_gone = outcome.returncode == 0
        time.sleep(float(pause_seconds))
    shutil.rmtree(folder, ignore_errors=True)
    return 0 if is_gone else 1


if __name__ == "__main__":
    sys.exit(main())
