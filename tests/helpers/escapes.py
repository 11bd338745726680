"""Ways out of the process in which an answer is tried, all seen to work once.

Each function gets a folder that belongs to somebody else, with the files
`notes.txt` and `more/notes.txt` in it, and the number of a process of the
same user, and tries to change something there. Those of `PYTHON` are told to
an audit hook, or can be taken away; those of `NATIVE` write past Python.
"""

import fcntl
import os
import resource
import shutil
import signal
import sqlite3
import sys
from multiprocessing import shared_memory, util
from pathlib import Path

import torch


def removes_a_tree(place, process):
    shutil.rmtree(place / "more", ignore_errors=True)


def opens_by_a_folder(place, process):
    folder = os.open(place, os.O_RDONLY)
    os.open("new", os.O_CREAT | os.O_WRONLY, dir_fd=folder)


def opens_from_within(place, process):
    """A path that lies inside of one folder and, begun in another, outside."""
    here = os.getcwd()
    path = os.path.relpath(place / "new", here)
    deep = os.path.join(*"abcdefghijklmnop"[: path.count("/")])
    os.makedirs(deep)
    folder = os.open(here, os.O_RDONLY)
    os.chdir(deep)
    try:
        os.open(path, os.O_CREAT | os.O_RDWR, dir_fd=folder)
    finally:
        os.chdir(here)


def renames_by_a_folder(place, process):
    folder = os.open(place, os.O_RDONLY)
    os.rename("notes.txt", "x", src_dir_fd=folder, dst_dir_fd=folder)


def removes_by_a_folder(place, process):
    os.remove("notes.txt", dir_fd=os.open(place, os.O_RDONLY))


def makes_a_pipe(place, process):
    os.mkfifo(place / "pipe")


def makes_a_node(place, process):
    os.mknod(place / "node")


def connects_a_base(place, process):
    with sqlite3.connect(place / "base") as base:
        base.execute("create table t (x)")


def changes_rights_by_descriptor(place, process):
    os.chmod(os.open(place / "notes.txt", os.O_RDONLY), 0o777)


def changes_times_by_descriptor(place, process):
    os.utime(os.open(place / "notes.txt", os.O_RDONLY), (1, 1))


def sets_an_attribute(place, process):
    os.setxattr(place / "notes.txt", "user.mine", b"1")


def shares_memory(place, process):
    shared_memory.SharedMemory(f"of-{process}", create=True, size=9)


def starts_a_program(place, process):
    """Without `subprocess`: as multiprocessing does it."""
    copy = f"echo yours > {place}/notes.txt".encode()
    new = util.spawnv_passfds(b"/bin/sh", [b"sh", b"-c", copy], [])
    if os.waitpid(new, 0)[1]:
        raise PermissionError


def signals_another(place, process):
    handle = os.pidfd_open(process)
    signal.pidfd_send_signal(handle, 0)


def slows_another(place, process):
    os.setpriority(os.PRIO_PROCESS, process, 19)


def moves_another(place, process):
    os.sched_setaffinity(process, {0})


def limits_another(place, process):
    old = resource.getrlimit(resource.RLIMIT_CORE)
    resource.prlimit(process, resource.RLIMIT_CORE, old)


def locks_a_file(place, process):
    fcntl.flock(os.open(place / "notes.txt", os.O_RDONLY), fcntl.LOCK_EX)


def lies_about_where_it_is(place, process):
    """The check would resolve a path by functions that can be replaced."""
    here = os.getcwd()
    real = os.getcwd
    os.chdir(place)
    os.getcwd = lambda: here
    try:
        open("notes.txt", "w")
    finally:
        os.getcwd = real
        os.chdir(here)


class Within(str):
    """A path that says of itself that it lies in another folder."""

    def startswith(self, *_):
        return False

    def __format__(self, spec):
        return "x"

    def __radd__(self, other):
        return other + "x"


def calls_itself_another(place, process):
    os.truncate(Within(place / "notes.txt"), 0)


PYTHON = [
    removes_a_tree,
    opens_by_a_folder,
    opens_from_within,
    renames_by_a_folder,
    removes_by_a_folder,
    makes_a_pipe,
    makes_a_node,
    connects_a_base,
    changes_rights_by_descriptor,
    changes_times_by_descriptor,
    sets_an_attribute,
    shares_memory,
    starts_a_program,
    signals_another,
    slows_another,
    moves_another,
    limits_another,
    locks_a_file,
    lies_about_where_it_is,
    calls_itself_another,
]
#: What the system does not hold: these change no file and end no process.
HARMLESS_TO_FILES = ["slows_another", "moves_another", "limits_another"]
HARMLESS_TO_FILES += ["locks_a_file"]


def saves_by_torch(place, process):
    torch.save({}, place / "notes.txt")


def saves_by_safetensors(place, process):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(2)}, place / "notes.txt")


def saves_by_tokenizers(place, process):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE()).save(str(place / "notes.txt"))


def maps_a_file(place, process):
    mapped = torch.from_file(
        str(place / "notes.txt"), shared=True, size=4, dtype=torch.uint8
    )
    mapped.zero_()


def saves_a_script(place, process):
    torch._C.PyTorchFileWriter(str(place / "script")).write_end_of_file()


NATIVE = [
    saves_by_torch,
    saves_by_safetensors,
    saves_by_tokenizers,
    maps_a_file,
    saves_a_script,
]


def tried(names, place, process):
    """What came of each: what it raised, or "done"."""
    import encodings.idna  # noqa: F401  (read before anything is taken away)

    found = {}
    for name in names:
        try:
            globals()[name](Path(place), process)
        except BaseException as error:
            found[name] = f"{type(error).__name__}: {error}"
        else:
            found[name] = "done"
    sys.stdout.flush()
    return found
