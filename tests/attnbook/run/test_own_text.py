"""The page on training with one's own text, line by line, as a new user
would.

The first training and the help are real starts of Python. So are `torchrun`
in `test_hands` and the commands in `test_chat`. All else is forked from a
process that has imported torch, and begins at once.
"""

import json
import os
import re
import signal
import socket
import subprocess
import time

import pytest
from forked_python import forked_pythons
from notebooks import ROOT

from attnbook import files

pytestmark = pytest.mark.slow
SECTION = (ROOT / "chapters" / "own_text.md").read_text(encoding="utf-8")
SETUP, TRAIN, RESUME, SAMPLE, LONGER, SHARED, MACHINES = re.findall(
    r"```sh\n(.*?)```", SECTION, re.DOTALL
)
[WRITE] = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)

#: Small sizes, for every command that trains.
TINY = (
    " --steps 40 --every 10 --batch-size 4 --d-model 16 --d-ff 16 "
    "--n-layers 1 --context 16 --sample 20 --device cpu"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A clone after `make book`, with a text that is not the book's."""
    folder = tmp_path_factory.mktemp("clone")
    for name in ("chapters", ".venv"):
        (folder / name).symlink_to(ROOT / name)
    (made,) = re.findall(r"mkdir -p (\S+)", SETUP)
    text = "\n".join(f"the {n} sheep jumped over the fence" for n in range(99))
    (folder / made).mkdir()
    (folder / made / "my.txt").write_text(text)
    return folder / made


@pytest.fixture(scope="module")
def forked(tmp_path_factory):
    """The line that lets `python` and `torchrun` start at once, and what these
    need in their environment."""
    commands = tmp_path_factory.mktemp("forked") / "bin"
    with forked_pythons(commands) as env:
        yield f'PATH="{commands}:$PATH"\n', env


def start(lines, folder, forked=("", {})):
    """The lines in a shell, after the set-up's, as a new user would."""
    lines = re.sub("(-m attnbook (?!sample).*)", r"\1" + TINY, lines)
    at_once, env = forked
    env = {**env, "OMP_NUM_THREADS": "1", "ATTNBOOK_QUIET": "1"}
    return subprocess.Popen(
        ["bash", "-ec", SETUP + at_once + lines],
        cwd=folder.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | env,
        start_new_session=True,
    )


def finished(process):
    out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err
    return out


def test_killed_and_resumed_it_ends_as_if_it_had_not_been(folder, forked):
    checkpoint = folder / "model.checkpoint.safetensors"
    process = start(TRAIN, folder)
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (folder / "model.safetensors").exists()
    said = finished(start(RESUME, folder, forked))
    assert re.search(r"step 40: loss .*, held out .*\n  '.*'\n", said)
    again = f"{TRAIN.strip()} --out whole.safetensors"
    whole = finished(start(again, folder, forked))
    assert re.search(r"step 10: loss ", whole)
    for end in ("", "checkpoint."):
        one, two = (
            (folder / f"{name}.{end}safetensors").read_bytes()
            for name in ("model", "whole")
        )
        assert one == two


def test_the_model_writes(folder, forked):
    if not (folder / "model.safetensors").exists():
        finished(start(TRAIN, folder, forked))
    program = f"python - <<'END'\n{WRITE}\nEND\n"
    said = finished(start(program, folder, forked))
    assert len(said) == 1001
    # The command writes the same, after what was begun.
    assert finished(start(SAMPLE, folder, forked)) == "the " + said


def test_a_finished_model_is_trained_on(folder, forked):
    if not (folder / "model.safetensors").exists():
        finished(start(TRAIN, folder, forked))
    said = finished(start(LONGER, folder, forked))
    assert "wrote longer.safetensors" in said
    first, second = (
        files.read(folder / f"{name}.checkpoint.safetensors")[0]["losses"]
        for name in ("model", "longer")
    )
    assert second[0] < first[0]


def test_git_ignores_the_folder_that_is_made():
    (made,) = re.findall(r"mkdir -p (\S+)", SETUP)
    assert f"/{made}/" in (ROOT / ".gitignore").read_text().splitlines()


def test_two_processes_share_a_batch(folder, forked):
    said = finished(start(SHARED, folder, forked))
    assert said.count("step 40") == 1  # the first process alone speaks
    assert (folder / "two.safetensors").exists()


def test_two_machines_share_a_batch(folder, forked):
    """Both of them this one, each with a single process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    lines = MACHINES.replace("first-machine:29500", place)
    lines = lines.replace("--nproc-per-node 8", "--nproc-per-node 1")
    assert lines.count("127.0.0.1") == lines.count("-node 1") == 1
    both = [start(lines, folder, forked) for _ in range(2)]
    said = "".join(finished(process) for process in both)
    assert said.count("step 40") == 1
    assert (folder / "all.safetensors").exists()


def test_what_the_section_names_is_there(folder):
    said = finished(start("python -m attnbook --help #", folder))
    commands = re.findall(r"`(python -m attnbook --.*?)`", SECTION)
    assert commands
    for command in commands:
        assert command.split()[-1] in said


def test_the_table_is_what_was_measured():
    stored = json.loads(
        (ROOT / "chapters/attnbook/data/shakespeare.json").read_text()
    )
    rows = re.findall(r"\| (.+) \| ([\d.]+) \| ([\d.]+) \|", SECTION)
    assert {
        who: {"loss": float(loss), "time": float(time)}
        for who, loss, time in rows
    } == stored
