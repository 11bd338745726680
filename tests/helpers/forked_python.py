"""A `python` and a `torchrun` that start at once, for tests of commands.

Each command that a page gives is a Python that imports torch, and what an
optimiser wants of it: three seconds of computing before it begins. The two
commands made here are forked from a process that has imported this, and
nothing of the book's; all else is theirs: arguments, environment, folder,
input and output, exit code. Who kills one of them kills its fork, too.

A line that imports a part of torch is not missed here where it is missing,
because that part is there. So tests start a real Python for each kind of
command, too; and so does every command here on a system other than Linux.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Where a command finds the process that it is forked from.
ADDRESS = "FORKED_PYTHON"
#: The commands that are made.
COMMANDS = ("python", "torchrun")
LENGTH = 8  # bytes in which the length of a request is sent

#: A command: it hands over all that it has, and waits.
CLIENT = """\
#!{python} -IS
import json, os, signal, socket, sys

connection = socket.socket(socket.AF_UNIX)
connection.connect(os.environ["{address}"])
request = json.dumps(
    {{
        "arguments": [{name!r}, *sys.argv[1:]],
        "env": dict(os.environ),
        "cwd": os.getcwd(),
        "executable": {executable!r},
    }}
).encode()
length = len(request).to_bytes({length}, "big")
socket.send_fds(connection, [length], [0, 1, 2])
connection.sendall(request)
code = int(connection.makefile().read() or 1)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


@contextlib.contextmanager
def forked_pythons(folder: Path) -> Iterator[dict[str, str]]:
    """Write the two commands into `folder`, a new one; the environment that
    they need beside the folder's place in PATH. On a system other than Linux
    there are none, and so those that come later in PATH are used."""
    folder.mkdir()
    if sys.platform != "linux":
        yield {}
        return
    address = str(folder / "address")
    for name in COMMANDS:
        command = folder / name
        text = CLIENT.format(
            python=sys.executable,
            address=ADDRESS,
            name=name,
            executable=str(folder / "python"),
            length=LENGTH,
        )
        command.write_text(text)
        command.chmod(0o755)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    parent = subprocess.Popen(
        [sys.executable, __file__, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env | {"OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )
    assert parent.stdin and parent.stdout
    try:
        if parent.stdout.readline() != b"ready\n":
            raise RuntimeError("the process that is forked from ended")
        yield {ADDRESS: address}
    finally:
        parent.stdin.close()
        parent.wait()
        parent.stdout.close()


def _wait_for_requests(address: str) -> tuple[dict[str, Any], list[int]]:
    """Fork at each request; what comes back is one, in the new process."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(8)
        print("ready", flush=True)
        while True:
            ready = select.select([listening, sys.stdin], [], [])[0]
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass  # those that have ended are let go
            if sys.stdin in ready:
                sys.exit()
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                return _received(connection)
            connection.close()


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """A request, in a fork of this process, which this process looks after."""
    size, handles, _, _ = socket.recv_fds(connection, LENGTH, 3)
    with connection.makefile("rb") as file:
        request = json.loads(file.read(int.from_bytes(size, "big")))
    child = os.fork()
    if child == 0:
        connection.close()
        return request, handles
    for handle in handles:
        os.close(handle)
    ended = os.pidfd_open(child)
    if ended not in select.select([connection, ended], [], [])[0]:
        os.kill(child, signal.SIGKILL)  # the command was killed
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    with contextlib.suppress(OSError):
        connection.sendall(str(code).encode())
    os._exit(0)


def _become(request: dict[str, Any], handles: list[int]) -> None:
    """Take over what the command has; its arguments, its name the first."""
    os.setsid()
    for number, handle in enumerate(handles):
        os.dup2(handle, number)
        os.close(handle)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.executable = request["executable"]
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [os.getcwd(), *filter(None, more)]
    sys.argv = request["arguments"]


def _run() -> None:
    """What Python does with such arguments as the book's commands have."""
    name, *arguments = sys.argv
    if name == "torchrun":
        return torch.distributed.run.main()
    if arguments[0] == "-u":  # torchrun wants its processes' lines at once
        sys.stdout.reconfigure(line_buffering=True)
        arguments = arguments[1:]
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif arguments[0] == "-":
        sys.argv = arguments
        program = compile(sys.stdin.read(), "<stdin>", "exec")
        exec(program, {"__name__": "__main__"})
    else:
        sys.exit(f"expected -m or - after python; got {arguments[0]}")


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    import torch._dynamo
    import torch.distributed.run

    gc.freeze()  # a fork's collections of garbage need not look at all this
    _become(*_wait_for_requests(sys.argv[1]))
    _run()
