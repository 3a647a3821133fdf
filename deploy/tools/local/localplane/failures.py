"""What went wrong when something could not be installed or built, in one line, and what to do about it."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FULL_BYTES = 16 << 20


class ToolError(RuntimeError):
    """A tool could not be had; the message says why and what to do."""


_NETWORK_SIGNS = (
    "dial tcp|no such host|i/o timeout|TLS handshake timeout|network is unreachable|connection refused|"
    "connection reset|proxyconnect|Temporary failure in name resolution|NewConnectionError|Max retries exceeded|"
    "ConnectTimeoutError|ReadTimeoutError|module lookup disabled|Failed to establish a new connection"
)
_NETWORK_ADVICE = (
    "the network does not answer: check the connection (and proxy settings) and run it again; "
    "what is there already is kept"
)
_CAUSES = (
    ("no space left on device|Errno 28|disk quota exceeded", "the disk is full: free some GB and run it again"),
    (_NETWORK_SIGNS, _NETWORK_ADVICE),
    ("THESE PACKAGES DO NOT MATCH THE HASHES|checksum mismatch|SECURITY ERROR", "a download is not what was pinned"),
    (r"\(from versions: none\)", "the package index does not answer or knows nothing of it: check the connection"),
    ("No matching distribution|is not a supported wheel", "there is no ready-made package for this platform"),
    ("[Pp]ermission denied", "a file or folder belongs to another user"),
    ("signal: killed|cannot allocate memory", "memory ran out: close other programs and run it again"),
)


def explain_failure(what: str, output: str, folder: Path | None = None) -> str:
    """Return one line: what failed, the cause if it is a known one, and the program's own last words.

    folder: where the program wrote; on a full disk it may not even have been able to say so.
    """
    if folder is not None and shutil.disk_usage(folder).free < FULL_BYTES:
        output += f"\nno space left on device under {folder}"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    last = lines[-1] if lines else "no output"
    for pattern, cause in _CAUSES:
        match = re.search(pattern, output)
        if match:
            words = next(line for line in lines if match[0].splitlines()[0] in line)
            return f"{what} failed: {cause} ({words[:300]})"
    return f"{what} failed: {last[:300]}"
