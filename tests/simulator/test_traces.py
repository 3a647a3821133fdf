"""Traces become scenarios: small files of each format here; the published ones where TRACES names their folder."""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet
import pytest

from fairbind.cli import main
from fairbind.model import InvalidProblemError
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.traces.rows import LeftOut, TableLimits, read_table
from fairbind.simulator.workload import FOREVER, draw_workload

TRACES = Path(os.environ.get("FAIRBIND_TRACES", Path(__file__).resolve().parents[3] / "shared" / "traces"))
SECOND = 10**9

OPENB_PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
scheduled_time
p-0,12000,16384,1,1000,,LS,Running,0,100,10
p-1,6000,12288,1,460,G2|G3,LS,Running,5,500,7
p-2,6000,12288,0,0,,BE,Pending,20,300,
p-3,6000,12288,1,460,G2|G3,LS,Running,3,30,4
"""
OPENB_NODES = """sn,cpu_milli,memory_mib,gpu,model
n-0,32000,262144,0,
n-1,96000,786432,8,G2
n-2,96000,786432,8,G2
"""
DLRM = """instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,\
memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time
i-0,HN,app_0,12,12,1,1,25,25,120.5,120.0,640.0,800.0,8,,,
i-1,CN,app_1,4,4,0,0,0,0,8,8,10,10,8,10,12,42
"""
GOOGLE = """1000000,,1,0,ann=,3,x,y
2000000,,1,1,ann=,3,x,y
3000000,,2,0,bob=,3,x,y
4000000,,1,2,ann=,3,x,y
5000000,,1,0,ann=,3,x,y
6000000,,1,1,ann=,3,x,y
9000000,,1,4,ann=,3,x,y
9500000,,2,5,bob=,3,x,y
11000000,,3,0,ann=,3,x,y
11500000,,3,1,ann=,3,x,y
12000000,,4,8,bob=,3,x,y
"""
BITBRAINS = """id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity
1019,1376314546000,60000,2,5852,181352
1023,1376314546500,30000,1,2926,260096
"""
FRAGMENTS = """id,duration,cpu_usage
1019,300000,0.0
1019,300000,1463
1023,300000,9999
"""
TABLE = """tenant,arrival,duration,cpu,memory,label:disk
a,0,60,500m,1Gi,ssd
a,10,,500m,1Gi,ssd
b,5,forever,2,4Gi,
"""
NODES = """count,cpu,memory,label:disk
2,8,32Gi,ssd
1,4,8Gi,
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """A function that writes a file and returns its path as text."""

    def write_file(name: str, text: str) -> str:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write_file


def convert(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Return the document that the command wrote, which `fairbind simulate` must take."""
    output = tmp_path / "scenario.json"
    assert main(["trace", *arguments, "--out", str(output)]) == 0
    document: dict[str, Any] = json.loads(output.read_text(encoding="utf-8"))
    parse_scenario(document)
    return document


def list_tasks(document: dict[str, Any]) -> list[tuple[str, float, object, dict[str, str]]]:
    """Return tenant, arrival, duration and requests of each task, by arrival."""
    tasks = [
        (entry["tenant"], arrival, duration, entry["pod"]["requests"])
        for entry in document["workload"]
        for arrival, duration in zip(entry["arrival"]["times"], entry["duration"]["each"], strict=True)
    ]
    return sorted(tasks, key=lambda task: task[1])


def test_openb(tmp_path: Path, write: Any) -> None:
    document = convert(
        tmp_path, "openb", write("pods.csv", OPENB_PODS), "--nodes", f"openb:{write('nodes.csv', OPENB_NODES)}"
    )

    assert list_tasks(document) == [
        ("ls", 0, 90, {"cpu": "12000m", "memory": "16384Mi", "nvidia.com/gpu": "1"}),
        ("ls", 3, 26, {"cpu": "6000m", "memory": "12288Mi", "nvidia.com/gpu": "1"}),
        ("ls", 5, "forever", {"cpu": "6000m", "memory": "12288Mi", "nvidia.com/gpu": "1"}),
        ("be", 20, 58, {"cpu": "6000m", "memory": "12288Mi"}),
    ]
    shapes = {shape["shape"]: (shape["count"], shape["capacity"], shape.get("labels")) for shape in document["cluster"]}
    assert shapes == {
        "shape-0": (
            2,
            {"cpu": "96000m", "memory": "786432Mi", "nvidia.com/gpu": "8"},
            {"alibabacloud.com/gpu-card-model": "G2"},
        ),
        "shape-1": (1, {"cpu": "32000m", "memory": "262144Mi"}, None),
    }
    models = [term for entry in document["workload"] if (term := entry["pod"].get("affinity"))]
    (affinity,) = models
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [
        {"key": "alibabacloud.com/gpu-card-model", "operator": "In", "values": ["G2", "G3"]}
    ]
    assert "composite" not in document
    assert document["notes"] == [
        "the class of service stands for the tenant, which openb does not name",
        "a part of a GPU counts as a whole one",
        "1 tasks outlive the trace: they run for ever",
        "1 tasks have no length in the trace: they run for the median of the others, 58 s",
    ]


def test_parts_of_gpus_can_be_counted(tmp_path: Path, write: Any) -> None:
    nodes = f"openb:{write('nodes.csv', OPENB_NODES)}"
    document = convert(tmp_path, "openb", write("pods.csv", OPENB_PODS), "--nodes", nodes, "--gpu", "milli")

    assert list_tasks(document)[1][3]["alibabacloud.com/gpu-milli"] == "460"
    assert document["cluster"][0]["capacity"]["alibabacloud.com/gpu-milli"] == "8000"


@pytest.mark.parametrize(
    ("options", "durations"),
    [
        (["--outliving", "trace-end", "--unknown", "forever"], [90, 26, 493, "forever"]),
        (["--outliving", "leave-out", "--unknown", "leave-out"], [90, 26]),
        (["--unknown", "7.5"], [90, 26, "forever", 7.5]),
        (["--from", "3", "--until", "5"], [26, "forever"]),
    ],
)
def test_what_is_assumed_can_be_chosen(tmp_path: Path, write: Any, options: list[str], durations: list[object]) -> None:
    nodes = f"openb:{write('nodes.csv', OPENB_NODES)}"
    document = convert(tmp_path, "openb", write("pods.csv", OPENB_PODS), "--nodes", nodes, *options)

    assert [duration for _, _, duration, _ in list_tasks(document)] == durations
    if "--from" in options:
        assert (document["horizon"], [arrival for _, arrival, _, _ in list_tasks(document)]) == (2.0, [0, 2])


def test_dlrm(tmp_path: Path, write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = f"table:{write('nodes.csv', NODES)}"
    document = convert(tmp_path, "dlrm", write("dlrm.csv", DLRM), "--nodes", nodes, "--ignore", "nvidia.com/gpu")

    assert list_tasks(document) == [
        (
            "app-0",
            0,
            "forever",
            {"cpu": "12000m", "memory": "123392Mi", "ephemeral-storage": "655360Mi", "rdma/bandwidth": "25"},
        ),
        ("app-1", 10, 30, {"cpu": "4000m", "memory": "8192Mi", "ephemeral-storage": "10240Mi"}),
    ]
    assert document["composite"] == "tasks of dlrm (dlrm.csv), nodes of table (nodes.csv)"
    said = capsys.readouterr().out
    assert "no node has ephemeral-storage, so 2 tasks never start; --ignore ephemeral-storage lets them" in said
    assert "no node has rdma/bandwidth, so 1 tasks never start" in said
    assert "nvidia.com/gpu is not kept" in said


def test_google_needs_the_requests_of_another_trace_and_is_a_composite_in_every_output(
    tmp_path: Path, write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    events, nodes = write("events.csv", GOOGLE), f"table:{write('nodes.csv', NODES)}"
    assert main(["trace", "google2011", events, "--nodes", nodes]) == 2
    assert capsys.readouterr().err.startswith("fairbind: --pods: is missing")

    pods = f"table:{write('table.csv', TABLE)}"
    document = convert(tmp_path, "google2011", events, "--pods", pods, "--nodes", nodes, "--seed", "4")

    tasks = list_tasks(document)
    # job 1 was evicted and ran again; job 2 never ran; job 3 outlives the trace; job 4 was there before the trace
    assert [task[:3] for task in tasks] == [
        ("user-2", 0, 7),
        ("user-1", 1, 7),
        ("user-2", 3, 7),
        ("user-1", 11, "forever"),
    ]
    assert {task[3]["cpu"] for task in tasks} <= {"500m", "2"}
    again = convert(tmp_path, "google2011", events, "--pods", pods, "--nodes", nodes, "--seed", "4")
    assert again == document
    text = "arrivals and run times of google2011 (events.csv), requests drawn from table (table.csv, seed 4)"
    assert document["composite"].startswith(text)

    capsys.readouterr()
    out = tmp_path / "out"
    command = ["simulate", str(tmp_path / "scenario.json"), "--policy", "fifo", "--out", str(out), "--tables", "csv"]
    assert main(command) == 0
    assert f"composite: {text}" in capsys.readouterr().out
    assert json.loads((out / "summary.json").read_text(encoding="utf-8"))["composite"].startswith(text)
    assert f"A composite: {text}" in (out / "report.html").read_text(encoding="utf-8")


def test_bitbrains(tmp_path: Path, write: Any) -> None:
    machines, nodes = write("tasks.csv", BITBRAINS), f"table:{write('nodes.csv', NODES)}"
    whole = convert(tmp_path, "bitbrains", machines, "--nodes", nodes)
    used = convert(tmp_path, "bitbrains", machines, "--nodes", nodes, "--usage", write("fragments.csv", FRAGMENTS))

    assert list_tasks(whole) == [
        ("vms", 0, 60, {"cpu": "2000m", "memory": "181352Ki"}),
        ("vms", 0.5, 30, {"cpu": "1000m", "memory": "260096Ki"}),
    ]
    assert [task[3]["cpu"] for task in list_tasks(used)] == ["500m", "1000m"]


def test_tables_of_our_own_as_csv_and_parquet(tmp_path: Path, write: Any) -> None:
    tasks, nodes = write("table.csv", TABLE), write("nodes.csv", NODES)
    document = convert(tmp_path, "table", tasks, "--nodes", f"table:{nodes}")

    assert list_tasks(document) == [
        ("a", 0, 60, {"cpu": "500m", "memory": "1Gi"}),
        ("b", 5, "forever", {"cpu": "2", "memory": "4Gi"}),
        ("a", 10, 60, {"cpu": "500m", "memory": "1Gi"}),
    ]
    assert document["cluster"][0] == {
        "shape": "shape-0",
        "count": 2,
        "capacity": {"cpu": "8", "memory": "32Gi"},
        "labels": {"disk": "ssd"},
    }
    pyarrow.parquet.write_table(pyarrow.csv.read_csv(tasks), tmp_path / "table.parquet")
    again = convert(tmp_path, "table", str(tmp_path / "table.parquet"), "--nodes", f"table:{nodes}")
    assert again["workload"] == document["workload"]


GROUPED = """tenant,arrival,duration,cpu,group
a,5,60,1,train-2
a,5,30,1,train-1
a,5,60,1,train-2
a,5,60,2,train-2
a,9,60,1,train-2
a,5,40,1,train-1
a,5,70,1,
b,5,60,1,train-1
"""


def test_tasks_of_a_group_start_together_where_that_is_asked_for(
    tmp_path: Path, write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Equal ones of one tenant and time."""
    arguments = ["table", write("table.csv", GROUPED), "--nodes", f"table:{write('nodes.csv', NODES)}"]
    together = [entry for entry in convert(tmp_path, *arguments, "--gangs")["workload"] if "gang" in entry]

    assert [(entry["gang"], entry["arrival"]["times"], entry["duration"]["each"]) for entry in together] == [
        ({"min": 2, "size": 2}, [5, 5, 5, 5], [30, 40, 60, 60])
    ]
    assert "assumed: 4 tasks start with others" in capsys.readouterr().out
    assert not any("gang" in entry for entry in convert(tmp_path, *arguments)["workload"])
    workload = draw_workload(parse_scenario(convert(tmp_path, *arguments, "--gangs")))
    assert sorted(workload.group_t.tolist()) == [-1, -1, -1, -1, 0, 0, 1, 1]


def test_rows_that_make_no_sense_are_left_out_counted_and_named(
    tmp_path: Path, write: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = TABLE + "a,-1,5,1,1Gi,\n,5,5,1,1Gi,\na,5,5,many,1Gi,\na,5\na,nan,5,1,1Gi,\na,1e10,5,1,1Gi,\n"
    nodes = f"table:{write('nodes.csv', NODES)}"
    document = convert(tmp_path, "table", write("table.csv", broken), "--nodes", nodes)

    assert len(list_tasks(document)) == 3
    assert "6 rows of table.csv were left out" in document["notes"]
    said = capsys.readouterr().err
    for reason in (
        "table.csv, line 5: arrival must be a number from 0, not",
        "line 6: tenant is empty",
        "line 7: cpu must be a quantity, not",
        "line 8: has 2 columns, not 6",
        "line 9: arrival must be a number from 0, not",
        "and 1 more",
    ):
        assert reason in said


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("openb", TABLE, "is no openb list of pods: its first line must name the columns cpu_milli, memory_mib"),
        ("dlrm", OPENB_PODS, "is no DLRM trace: its first line must name the columns app_name"),
        ("bitbrains", FRAGMENTS, "is no list of Bitbrains machines: its first line must name the columns id"),
        ("table", "", "is no table of tasks: its first line must name the columns tenant, arrival, duration; it has"),
        ("table", TABLE + "a,7,", "ends in the middle of line 5"),
        ("table", "tenant,arrival,duration,cpu,cpu\na,1,1,1,1\n", "names a column twice"),
        ("table", "tenant,arrival,duration,cpu\n", "no task is left"),
    ],
)
def test_another_format_is_refused_with_what_was_expected(
    write: Any, capsys: pytest.CaptureFixture[str], kind: str, text: str, said: str
) -> None:
    assert main(["trace", kind, write("t.csv", text), "--nodes", f"table:{write('nodes.csv', NODES)}"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err
    assert captured.err.count("\n") == 1


def test_a_file_that_breaks_off_is_refused(tmp_path: Path, write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    whole = gzip.compress((TABLE * 200).encode())
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    nodes = f"table:{write('nodes.csv', NODES)}"

    assert main(["trace", "table", str(tmp_path / "cut.csv.gz"), "--nodes", nodes]) == 2
    assert "cut.csv.gz: ends in the middle of line " in capsys.readouterr().err
    events = f"table:{write('table.csv', TABLE)}"
    assert main(["trace", "google2011", write("e.csv", TABLE), "--pods", events, "--nodes", nodes]) == 2
    assert "is no list of job events of 2011: line 1 has 6 columns, not 8" in capsys.readouterr().err


def read_names(path: Path, limits: TableLimits) -> list[str]:
    return list(
        read_table(
            path, ("name",), lambda row: row.text("name"), what="list of names", left_out=LeftOut(path), limits=limits
        )
    )


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("name\n" + "a" * 101, "line 2: a row must not be larger than 100 bytes"),
        ("a" * 101, "line 1: a row must not be larger than 100 bytes"),
        ("name\n" + '"\n",' * 100, "line 27: a row must not be larger than 100 bytes"),
        ("name\n" * 5, "must not have more than 4 rows"),
        ("name\n" + "\n" * 4, "must not have more than 4 rows"),
        ("name\n" + "a,b\n" * 4, "must not have more than 4 rows"),
    ],
    ids=["line", "header", "lines of one row", "rows", "empty rows", "invalid rows"],
)
def test_a_table_is_bounded_before_it_expands(tmp_path: Path, suffix: str, content: str, said: str) -> None:
    path = tmp_path / f"names{suffix}"
    path.write_bytes(gzip.compress(content.encode()) if suffix == ".csv.gz" else content.encode())

    with pytest.raises(InvalidProblemError) as refusal:
        read_names(path, TableLimits(row_bytes=100, rows=4))
    assert str(refusal.value) == f"{path}: {said}"


def test_a_table_up_to_its_limits_is_read(tmp_path: Path) -> None:
    path = tmp_path / "names.csv"
    path.write_text(f"name\n{'a' * 99}\n{'b' * 99}\nc\n")

    assert read_names(path, TableLimits(row_bytes=100, rows=4)) == ["a" * 99, "b" * 99, "c"]


def test_parquet_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "names.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"name": ["a" * 200] * 5}), path)

    with pytest.raises(InvalidProblemError, match=r"names\.parquet: must not have more than 4 rows"):
        read_names(path, TableLimits(rows=4))
    with pytest.raises(InvalidProblemError, match=r"line 1: a row must not be larger than 100 bytes"):
        read_names(path, TableLimits(row_bytes=100))


@pytest.mark.parametrize("is_nodes", [False, True])
def test_an_endless_device_is_no_trace(write: Any, capsys: pytest.CaptureFixture[str], *, is_nodes: bool) -> None:
    tasks, nodes = write("table.csv", TABLE), write("nodes.csv", NODES)
    given = [tasks, "--nodes", "table:/dev/zero"] if is_nodes else ["/dev/zero", "--nodes", f"table:{nodes}"]

    assert main(["trace", "table", *given]) == 2
    assert capsys.readouterr().err == "fairbind: /dev/zero: line 1: a row must not be larger than 1,048,576 bytes\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--nodes", "NODES", "--until", "0"], "--until: must be above --from, 0, not 0"),
        (["--nodes", "NODES", "--usage", "TASKS"], "--usage: must not stand without a bitbrains trace"),
        (["--nodes", "xml:NODES"], "must be FORMAT:FILE with a format of openb, table"),
        (["--nodes", "NODES", "--unknown", "soon"], "must be median, forever, leave-out or seconds"),
        (["--nodes", "NODES", "--unknown", "0"], "must be median, forever, leave-out or seconds"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    write: Any, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    tasks, nodes = write("table.csv", TABLE), write("nodes.csv", NODES)
    given = [option.replace("xml:NODES", f"xml:{nodes}") for option in options]
    given = [{"NODES": f"table:{nodes}", "TASKS": tasks}.get(option, option) for option in given]
    assert main(["trace", "table", tasks, *given]) == 2
    assert said in capsys.readouterr().err


def test_only_a_table_names_groups(write: Any, capsys: pytest.CaptureFixture[str]) -> None:
    given = [write("pods.csv", OPENB_PODS), "--nodes", f"openb:{write('nodes.csv', OPENB_NODES)}"]

    assert main(["trace", "openb", *given, "--gangs"]) == 2
    assert "--gangs: must not stand beside openb" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not TRACES.is_dir(), reason=f"the published traces are not in {TRACES}")
@pytest.mark.parametrize(
    ("arguments", "tasks", "tenants", "forever"),
    [
        (["openb", "openb-v2023/openb_pod_list_default.csv.gz"], 8_152, 4, 34),
        pytest.param(
            ["dlrm", "alibaba-dlrm-v2025/disaggregated_DLRM_trace.csv.gz"],
            23_871,
            156,
            8_878,
            marks=pytest.mark.nightly,
        ),
        (["bitbrains", "bitbrains-small/bitbrains-small_tasks.csv"], 50, 1, 0),
        pytest.param(
            [
                "google2011",
                "google2011-job-events/job_events_users9pct_seed0.csv.gz",
                "--pods",
                "openb:openb-v2023/openb_pod_list_default.csv.gz",
            ],
            28_056,
            84,
            None,
            marks=pytest.mark.nightly,
        ),
    ],
    ids=["openb", "dlrm", "bitbrains", "google2011"],
)
def test_the_published_traces(
    tmp_path: Path, arguments: list[str], tasks: int, tenants: int, forever: int | None
) -> None:
    kind, file, *more = arguments
    more = [option.replace("openb:", f"openb:{TRACES}/") for option in more]
    nodes = f"openb:{TRACES / 'openb-v2023/openb_node_list_all_node.csv'}"
    document = convert(tmp_path, kind, str(TRACES / file), *more, "--nodes", nodes)

    workload = draw_workload(parse_scenario(document))
    assert len(workload.arrival_t) == tasks
    assert len(document["tenants"]) == tenants
    assert sum(shape["count"] for shape in document["cluster"]) == 1_523
    if forever is not None:
        assert Counter((workload.duration_t == FOREVER).tolist())[True] == forever
