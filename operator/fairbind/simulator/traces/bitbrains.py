"""bitbrains: virtual machines of a data centre (GWA-T-12), as two tables: machines, and what they used meanwhile.

Times are milliseconds; the first submission is the start. The machines have no tenants: all are one's, `vms`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from fairbind.simulator.traces.rows import BrokenRowError, LeftOut, Row, read_table
from fairbind.simulator.traces.tasks import Ending, Pod, TraceTask

COLUMNS: Final = ("id", "submission_time", "duration", "cpu_count", "cpu_capacity", "mem_capacity")
USAGE_COLUMNS: Final = ("id", "cpu_usage")
TENANT: Final = "vms"
MILLISECOND: Final = 1e-3
NANOSECONDS_IN_MILLISECOND: Final = 10**6
MILLI: Final = 1000
KIBI, GIGA = 1024, 1e9


class _Machine(NamedTuple):
    name: str
    submitted: float
    length: int
    cores: float
    megahertz: float
    memory_kib: float


def read_tasks(path: Path, left_out: LeftOut, *, usage: Path | None = None) -> Iterator[TraceTask]:
    """Yield the machines. usage: where given, each asks for as much CPU as it ever used, and not for all its cores."""
    machines = list(read_table(path, COLUMNS, _read_machine, what="list of Bitbrains machines", left_out=left_out))
    peaks = {} if usage is None else _find_peaks(usage, left_out)
    first = min((machine.submitted for machine in machines), default=0.0)
    for machine in machines:
        cores = machine.cores
        if machine.name in peaks and machine.megahertz > 0:
            cores = min(cores, machine.cores * peaks[machine.name] / machine.megahertz)
        requests = (("cpu", f"{max(1.0, cores * MILLI):.0f}m"), ("memory", f"{machine.memory_kib:.0f}Ki"))
        arrival = round((machine.submitted - first) * NANOSECONDS_IN_MILLISECOND)
        yield TraceTask(TENANT, arrival, machine.length, Ending.KNOWN, Pod(requests))


def read_machines(path: Path, left_out: LeftOut) -> list[tuple[float, float]]:
    """Return GHz and GB of each machine."""
    machines = read_table(path, COLUMNS, _read_machine, what="list of Bitbrains machines", left_out=left_out)
    return [(machine.megahertz / MILLI, machine.memory_kib * KIBI / GIGA) for machine in machines]


def _read_machine(row: Row) -> _Machine:
    length = row.time("duration", MILLISECOND)
    if not length:
        raise BrokenRowError("duration is empty or 0")
    return _Machine(
        row.text("id"),
        row.amount("submission_time"),
        length,
        row.amount("cpu_count"),
        row.amount("cpu_capacity"),
        row.amount("mem_capacity"),
    )


def _find_peaks(path: Path, left_out: LeftOut) -> dict[str, float]:
    """Return the most CPU that each machine used, in megahertz."""
    peaks: dict[str, float] = defaultdict(float)
    what = "list of Bitbrains fragments"
    for name, used in read_table(path, USAGE_COLUMNS, _read_use, what=what, left_out=left_out):
        peaks[name] = max(peaks[name], used)
    return dict(peaks)


def _read_use(row: Row) -> tuple[str, float]:
    return row.text("id"), row.amount("cpu_usage")
