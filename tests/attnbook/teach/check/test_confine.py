"""What runs alone: what it is given, what it may, and what comes back."""

import ctypes
import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnbook.teach.check import confine
from attnbook.teach.check.confine import alone, bare_environment

LIMITS = {"seconds": 9, "memory": 500}


def around():
    """What a process finds around it."""
    return {
        "here": os.listdir(),
        "variables": sorted(os.environ),
        "interfaces": [name for _, name in socket.if_nameindex()],
        "path": sys.path[:3],
    }


def refused(*calls):
    found = []
    for call, *arguments in calls:
        module, name = call.split(".")
        try:
            getattr(__import__(module), name)(*arguments)
        except PermissionError:
            found.append(call)
    return found


def much(n):
    return "x" * n


def forges(pipe_is):
    """Writes into every open pipe, as a cheat would."""
    for handle in range(3, 64):
        try:
            os.write(handle, pipe_is.encode())
        except OSError:
            pass
    os._exit(0)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_process_finds_nothing_of_yours(method, monkeypatch):
    monkeypatch.setenv("TOKEN", "mine")
    monkeypatch.setattr(
        multiprocessing, "get_all_start_methods", lambda: [method]
    )
    with bare_environment():
        paths = os.pathsep.join(p for p in sys.path if p)
        os.environ["PYTHONPATH"] = paths
        found = alone(around, **LIMITS)
    assert os.environ["TOKEN"] == "mine"
    assert found.exit_code == 0 and not found.late
    assert found.result["here"] == []
    assert "TOKEN" not in found.result["variables"]
    assert {"PATH", "HOME", "OMP_NUM_THREADS"} <= {*found.result["variables"]}


def unshares():
    libc = ctypes.CDLL(None)
    return not libc.unshare(0x40000000) or not libc.unshare(0x50000000)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux can do this")
def test_a_process_has_no_network_where_the_system_can_take_it():
    # In a process of its own, so that this one keeps its network.
    code = "import test_confine; print(test_confine.unshares())"

    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ).stdout
    if said.strip() != "True":
        pytest.skip("this system lets nobody leave its network")
    assert alone(around, **LIMITS).result["interfaces"] in ([], ["lo"])


def test_what_is_refused(tmp_path):
    file = tmp_path / "mine"
    file.write_text("mine")
    calls = [
        ("socket.create_connection", ("127.0.0.1", 9)),
        ("socket.getaddrinfo", "localhost", 80),
        ("subprocess.run", ["true"]),
        ("os.system", "true"),
        ("os.fork",),
        ("os.kill", os.getpid(), 0),
        ("os.remove", str(file)),
        ("os.rename", str(file), "x"),
        ("os.truncate", str(file), 0),
        ("os.chmod", str(file), 0),
        ("os.symlink", str(file), str(tmp_path / "link")),
        ("os.mkdir", str(tmp_path / "folder")),
        ("io.open", str(file), "a"),
        ("os.open", str(file), os.O_RDWR),
        ("ctypes.CDLL", None),
    ]
    assert alone(refused, *calls, **LIMITS).result == [c[0] for c in calls]
    assert file.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
    mine = [("io.open", "x", "w"), ("os.mkdir", "y"), ("io.open", str(file))]
    assert alone(refused, *mine, **LIMITS).result == []


def test_what_only_waits_ends_too(monkeypatch):
    monkeypatch.setattr(confine, "PATIENCE", 1)
    found = alone(time.sleep, 999, seconds=1, memory=500)
    assert found.late and found.result is None


def test_a_result_is_short_and_never_unpickled():
    assert alone(much, 100, **LIMITS).result == "x" * 100
    assert alone(much, confine.MOST_RESULT, **LIMITS).result is None
    for text in ("no json", json.dumps([1]), ""):
        assert alone(forges, text, **LIMITS).result in (None, [1])
