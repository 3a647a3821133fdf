"""The loopback of a network of our own: it is down in a new one."""

from __future__ import annotations

import fcntl
import socket
import struct

GET_FLAGS, SET_FLAGS = 0x8913, 0x8914
"""SIOCGIFFLAGS and SIOCSIFFLAGS of Linux."""
UP = 0x1
REQUEST = "16sH14x"


def list_others() -> list[str]:
    """Return the network's interfaces that are not loopback."""
    return [name for _, name in socket.if_nameindex() if name != "lo"]


def open_loopback() -> None:
    """Bring the loopback up."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket, GET_FLAGS, struct.pack(REQUEST, b"lo", 0))
        _, flags = struct.unpack(REQUEST, answer)
        fcntl.ioctl(any_socket, SET_FLAGS, struct.pack(REQUEST, b"lo", flags | UP))
