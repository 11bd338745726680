"""Kernels that start at once, each forked from a process that has torch.

A kernel's own start and `import torch` take two seconds, what pages import
besides takes three to six more, and the tests run some seventy. A fork of a
process that has imported all this and done nothing is the same: it has no
names. But a page that leaves out the import of a part of a library is not
found out here, because that part is there; `tests/chapters/test_imports.py`
looks for such pages.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any
from unittest import mock

#: What pages import that takes long. An optimiser wants torch._dynamo.
LIBRARIES = [
    "matplotlib.pyplot",
    "scipy.stats",
    "torch._dynamo",
    "transformers.generation",
    "transformers.models.auto.modeling_auto",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
]
#: Where figures go in a kernel: Matplotlib reads it when it is imported.
BACKEND = "module://matplotlib_inline.backend_inline"

LAUNCHER = "ipykernel_launcher"
PR_SET_PDEATHSIG = 1  # of Linux's prctl: the signal when the parent ends


@contextlib.contextmanager
def forked_kernels() -> Iterator[None]:
    """Here jupyter_client forks its kernels, on Linux."""
    from jupyter_client.provisioning import local_provisioner

    if not sys.platform.startswith("linux"):
        yield
        return
    launch = functools.partial(_launch, local_provisioner.launch_kernel)
    with mock.patch.object(local_provisioner, "launch_kernel", launch):
        yield


def _launch(otherwise, cmd: list[str], **options: Any):
    """Start a kernel of this Python; others start as ever."""
    if cmd[0] != sys.executable or LAUNCHER not in cmd:
        return otherwise(cmd, **options)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_parent_of_kernels())
    request = {
        "arguments": cmd[cmd.index(LAUNCHER) + 1 :],
        "env": options.get("env") or dict(os.environ),
        "cwd": str(options.get("cwd") or os.getcwd()),
    }
    connection.sendall(json.dumps(request).encode() + b"\n")
    return Kernel(connection)


@functools.cache
def _parent_of_kernels() -> str:
    """The address of the process whose forks the kernels are.

    It ends when this process does, which closes its standard input.
    """
    folder = tempfile.mkdtemp(prefix="kernels")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = os.path.join(folder, "address")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    parent = subprocess.Popen(
        [sys.executable, __file__, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    assert parent.stdin and parent.stdout
    _kept.append(parent)
    if parent.stdout.readline() != b"ready\n":
        raise RuntimeError("the process that kernels are forked from ended")
    return address


_kept: list[Any] = []  # would be closed otherwise


class Kernel:
    """A kernel's process, as jupyter_client looks at one (`Popen`).

    It is alive as long as its end of the connection is open.
    """

    stdin = stdout = stderr = None

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.returncode: int | None = None
        with connection.makefile() as lines:
            self.pid = int(lines.readline())

    def poll(self) -> int | None:
        return self._ended(0)

    def wait(self, timeout: float | None = None) -> int:
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(LAUNCHER, timeout or 0)
        return 0

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            if select.select([self.connection], [], [], timeout)[0]:
                self.connection.close()
                self.returncode = 0
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _wait_for_requests(address: str) -> tuple[socket.socket, dict[str, Any]]:
    """Fork at each request; what comes back is one, in the new process."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for kernels
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen(8)
        print("ready", flush=True)
        os.dup2(2, 1)  # what a kernel writes is no answer to the tests
        while True:
            ready = select.select([listening, sys.stdin], [], [])[0]
            if sys.stdin in ready:
                sys.exit()
            connection, _ = listening.accept()
            with connection.makefile() as lines:
                request = json.loads(lines.readline())
            if os.fork() == 0:
                return connection, request
            connection.close()


def _become(connection: socket.socket, request: dict[str, Any]) -> None:
    """What `python -m ipykernel_launcher` finds, in this fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # It ends with the process that it was forked from, even in the middle of
    # a cell: a test run that is killed leaves no kernel behind.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    os.environ.clear()
    os.environ.update(request["env"], JPY_PARENT_PID=str(os.getppid()))
    os.chdir(request["cwd"])
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    more = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [os.getcwd(), *filter(None, more)]
    sys.argv[1:] = request["arguments"]
    connection.sendall(f"{os.getpid()}\n".encode())


if __name__ == "__main__":
    del sys.path[0]  # the folder of this file
    import ipykernel.ipkernel
    import ipykernel.kernelapp  # noqa: F401
    import torch  # noqa: F401

    os.environ["MPLBACKEND"] = BACKEND
    with warnings.catch_warnings():
        # transformers complains when Jupyter has no widgets, as the set-up
        # cell of a page knows.
        warnings.filterwarnings("ignore", message="IProgress not found")
        # Triton, where there is Triton, is imported by all but the first two,
        # for a card, and a page's own module may ask for its interpreter.
        for library in LIBRARIES[: 2 if find_spec("triton") else None]:
            importlib.import_module(library)
    gc.freeze()  # a fork's collections of garbage need not look at all this
    asked = _wait_for_requests(sys.argv[1])
    _become(*asked)
    runpy.run_module(LAUNCHER, run_name="__main__", alter_sys=True)
