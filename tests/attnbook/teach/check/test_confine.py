"""What runs alone: what it is given, what it may, and what comes back."""

import ctypes
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import escapes
import numpy as np
import pytest
import torch

from attnbook.teach.check import confine
from attnbook.teach.check.confine import alone, bare_environment, standing
from attnbook.teach.check.walls import refused as refused_by_system

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


def sends(*messages):
    """Writes messages of its own, each to all that is open."""
    for message in messages:
        data = len(message).to_bytes(4, "big") + message.encode()
        for handle in range(3, 64):
            try:
                os.write(handle, data)
            except OSError:
                pass
    return "mine"


def goes_on():
    os.closerange(3, 64)
    time.sleep(99)


def leaves(code):
    os._exit(code)


def sends_half():
    for handle in range(3, 64):
        try:
            os.write(handle, b"\0\0\0\x0fab")
        except OSError:
            pass
    time.sleep(99)


@pytest.mark.parametrize(
    "work, arguments, odd, code",
    [
        (sends, [], "", 0),
        (sends, ["1"], "sent more than one result", 0),
        (sends, ["1", "2"], "sent more than one result", 0),
        (goes_on, [], "closed its way back and went on", -9),
        (leaves, [0], "", 0),
        (leaves, [3], "", 3),
    ],
)
def test_one_result_and_a_quiet_end(work, arguments, odd, code, monkeypatch):
    monkeypatch.setattr(confine, "LEAVING", 1)
    ended = alone(work, *arguments, **LIMITS)
    assert (ended.odd, ended.exit_code, ended.late) == (odd, code, False)
    assert ended.result == (None if arguments or work is goes_on else "mine")


def test_half_a_result_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(confine, "PATIENCE", 1)
    ended = alone(sends_half, seconds=1, memory=500)
    assert ended.late and ended.result is None


def test_a_process_that_does_not_begin_is_no_answers_fault(monkeypatch):
    monkeypatch.setattr(confine, "STARTING", 0)
    monkeypatch.setattr(confine, "_inside", never_begins)
    with pytest.raises(RuntimeError, match="did not begin within 0 seconds"):
        alone(leaves, 0, **LIMITS)


def never_begins(*_):
    time.sleep(99)


def ignores(number):
    signal.signal(number, signal.SIG_IGN)
    while True:
        pass


def test_who_ignores_signals_is_out_of_time_too():
    ended = alone(ignores, signal.SIGXCPU, seconds=1, memory=500)
    assert ended.late and ended.exit_code == -signal.SIGKILL


def takes_all():
    os.kill(os.getpid(), signal.SIGKILL)


def test_who_is_killed_before_its_time_is_not_late():
    ended = alone(takes_all, seconds=60, memory=500, kept_by=())
    assert not ended.late and ended.exit_code == -signal.SIGKILL


WALLS = {
    "both": ("system", "Python"),
    "Python": ("Python",),
    "system": ("system",),
}
#: What the system does not hold here: no file is changed and nothing ends.
NOT_HELD = {"limits_another", "locks_a_file", "removes_a_tree"}


@pytest.fixture(scope="module")
def held():
    """What this system holds by itself."""
    return standing()


@pytest.fixture
def another():
    """A process that is there to be hurt, and is not."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as one:
        yield one.pid
        assert one.poll() is None
        one.kill()


@pytest.fixture
def place(tmp_path):
    """A folder of somebody else's, and what it is afterwards."""
    place = tmp_path / "place"
    (place / "more").mkdir(parents=True)
    for folder in (place, place / "more"):
        (folder / "notes.txt").write_text("mine")
    return place


def looks(place):
    """All of a folder that a change would show in."""
    found = {}
    for path in [place, *place.rglob("*")]:
        about = path.stat()
        marks = os.listxattr(path)
        content = path.read_bytes() if path.is_file() else b""
        found[path] = about.st_mode, about.st_mtime, marks, content
    return found


def within(escape):
    return [each.__name__ for each in escape]


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
@pytest.mark.parametrize("walls", WALLS)
def test_each_way_out_is_closed(walls, place, another, held):
    """All were seen to work before they were closed."""
    by_system = walls != "Python"
    if by_system and not all(held.values()):
        pytest.skip(f"this system does not hold all by itself: {held}")
    before = looks(place)
    shared = sorted(os.listdir("/dev/shm"))
    names = within(escapes.PYTHON + (escapes.NATIVE if by_system else []))
    found = alone(
        escapes.tried,
        names,
        str(place),
        another,
        **LIMITS | {"memory": 2000},
        kept_by=WALLS[walls],
    ).result
    assert looks(place) == before
    assert sorted(os.listdir("/dev/shm")) == shared
    done = {name for name, what in found.items() if what == "done"}
    assert done == (NOT_HELD if walls == "system" else set())
    assert found.keys() == {*names}


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
def test_without_a_wall_of_the_system_native_code_writes(place, another):
    """So the page for teachers says it."""
    names = within(escapes.NATIVE)
    limits = LIMITS | {"memory": 2000, "kept_by": WALLS["Python"]}
    found = alone(escapes.tried, names, str(place), another, **limits).result
    assert {*found.values()} == {"done"}


def writes_at_home():
    """What an answer may do in its own folder."""
    import shutil
    import tempfile

    with tempfile.TemporaryDirectory() as made:
        with open(f"{made}/x", "w") as file:
            file.write("x")
        os.chmod(f"{made}/x", 0o600)
        os.rename(f"{made}/x", f"{made}/y")
    os.makedirs("a/b")
    torch.save({}, "a/b/x")
    shutil.rmtree("a")
    np.save("x.npy", np.ones(3))
    with open(os.devnull, "w") as file:
        file.write("x")
    return os.listdir()


@pytest.mark.parametrize("walls", [*WALLS.values(), ()], ids=str)
def test_an_answer_may_write_in_its_own_folder(walls):
    ended = alone(writes_at_home, **LIMITS, kept_by=walls)
    assert ended.result == ["x.npy"]


def fills():
    """Several files, each of a size that one may have."""
    for n in range(9):
        with open(f"x{n}", "wb") as file:
            file.write(bytes(confine.MOST_FILE))


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
def test_its_folder_is_of_limited_size(held):
    if not held["changing the rights of files"]:
        pytest.skip("there is no mount of its own on this system")
    assert alone(fills, **LIMITS).exit_code == 1


@pytest.mark.skipif(sys.platform != "linux", reason="as Linux does it")
def test_what_stands_is_found_out_by_trying(held):
    assert len(held) == 6 and held[confine.MORE_MEMORY]
    ended = alone(walls_seen, [], **LIMITS, kept_by=())
    assert not any(ended.result.values())


def walls_seen(_):
    """What is refused where nothing was put up."""
    with tempfile.TemporaryDirectory() as place:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            return refused_by_system(place, port, os.getpid())
