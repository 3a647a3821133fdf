"""Free ports on loopback.

They are taken from below the range that the kernel hands out to outgoing connections: a port from inside that range
could be lost to a mere client while the server that owns it restarts.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST_PORT = 10240
EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_EPHEMERAL_START = 32768
ATTEMPTS = 200

_random = random.SystemRandom()


class NoFreePortError(RuntimeError):
    """Every port that was tried is in use."""


def find_free_ports(count: int) -> list[int]:
    """Return different ports that are free on loopback now; other programs may take them before they are used."""
    ports: set[int] = set()
    ceiling = _find_ephemeral_start()
    for _ in range(ATTEMPTS):
        if len(ports) == count:
            break
        port = _random.randrange(LOWEST_PORT, ceiling)
        if is_free(port):
            ports.add(port)
    if len(ports) < count:
        raise NoFreePortError(f"no {count} free ports among {ATTEMPTS} tried on 127.0.0.1; close some programs")
    return sorted(ports)


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _find_ephemeral_start() -> int:
    try:
        start = int(EPHEMERAL_RANGE.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        start = DEFAULT_EPHEMERAL_START
    return start if start > LOWEST_PORT + 2 * ATTEMPTS else DEFAULT_EPHEMERAL_START
