"""The command: what it writes, what it refuses, and that it says why."""

import dataclasses
import io
import os
import re
import shutil
import signal
import sys
from multiprocessing import forkserver
from unittest import mock

import killed
import pytest
import torch
import torch.distributed as dist

from attnbook.feed_forward import FEED_FORWARDS
from attnbook.files import read as files_of_run
from attnbook.gpt import POSITIONS, GPTConfig
from attnbook.norms import NORMS
from attnbook.pretrained import load_model, save_model
from attnbook.run import command as program
from attnbook.run import places
from attnbook.run.places import reserved
from attnbook.training import PRECISIONS, Recipe

TINY = (
    "--steps 4 --every 2 --batch-size 2 --d-model 8 --n-heads 2 "
    "--n-layers 1 --context 16 --device cpu"
).split()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATTNBOOK_QUIET", "1")
    (tmp_path / "text.txt").write_text("the boat left the river bank. " * 30)
    return tmp_path


def command(*arguments):
    try:
        return program.main([*TINY, *arguments])
    except SystemExit as error:  # of argparse
        return error.code


def files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_it_trains_on_a_text(here, capsys):
    state = torch.get_rng_state()
    assert command("text.txt", "--out", "a.safetensors") == 0
    assert torch.equal(torch.get_rng_state(), state)
    captured = capsys.readouterr()
    said = r"step {}: loss \d\.\d{{4}}, held out \d\.\d{{4}}\n  '.{{64}}'\n"
    assert re.fullmatch(
        said.format(2) + said.format(4) + r"wrote a\.safetensors\n",
        captured.out,
    )
    found = load_model("a.safetensors")
    last = load_model("a.checkpoint.safetensors").model.state_dict()
    letters = set((here / "text.txt").read_text())
    assert list(found.vocabulary) == sorted(letters)
    assert found.model.config.d_model == 8
    assert found.about["recipe"]["steps"] == 4
    for name, tensor in found.model.state_dict().items():
        assert torch.equal(tensor, last[name])
    assert not list(here.glob(".*"))  # no lock is left


def test_it_trains_on_shakespeare(here, capsys, monkeypatch):
    monkeypatch.setattr(program, "tiny_shakespeare", lambda: "to be " * 50)
    assert command("--shakespeare", "--sample", "0") == 0
    assert len(load_model("model.safetensors").vocabulary) == 5
    assert "'" not in capsys.readouterr().out


def test_a_person_sees_a_bar(here, capsys, monkeypatch):
    monkeypatch.delenv("ATTNBOOK_QUIET", raising=False)
    assert command("text.txt") == 0
    bar = capsys.readouterr().err
    assert re.search(r"128/128 \[.*<.*tok/s, loss \d\.\d{3}\]", bar)


def test_every_option_is_explained(here, capsys):
    assert command("--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    for one in dataclasses.fields(GPTConfig) + dataclasses.fields(Recipe):
        if one.name != "vocab_size":
            option = "--" + one.name.replace("_", "-")
            help = re.escape(one.metadata["help"])
            assert re.search(f"{option} .*?{help}", said), option


MUCH = "99999999999999999999999"


@pytest.mark.parametrize(
    "arguments, names",
    [
        ([], "expected the file of a text .* or one of the commands chat"),
        (["text.txt", "--shakespeare"], "not allowed with"),
        (["none.txt"], "there is no file none.txt"),
        (["none.txt", "--out", "bytes.bin"], "there is no file none.txt"),
        (["."], r"\. is a folder; expected a file of plain text"),
        (["empty.txt"], "empty.txt is empty"),
        (["short.txt"], "short.txt is too short.*10 char.*--context.*got 9"),
        (["bytes.bin"], "bytes.bin is no text"),
        (["text.txt", "--device", "abacus"], "device.*abacus"),
        (["text.txt", "--device", "meta"], "device.*meta"),
        (["text.txt", "--out", "none/model"], "no folder none"),
        (["text.txt", "--out", ""], "is a folder.*--out"),
        (["text.txt", "--out", "bytes.bin"], "bytes.bin exists.*--overwrite"),
        (["text.txt", "--out", "b"], "b.checkpoint.* exists.*--resume goes"),
        (["text.txt", "--out", "text.txt", "--overwrite"], "the text itself"),
        (["text.txt", "--out", "link", "--overwrite"], "the text"),
        (["text.txt", "--out", "c", "--overwrite"], "the text"),
        (["text.txt", "--resume"], "no file model.checkpoint.safetensors"),
        (["text.txt", "--steps", "0"], "steps"),
        (["text.txt", "--every", "0"], "every"),
        (["text.txt", "--sample", "-1"], "sample"),
        (["text.txt", "--n-heads", "3"], "n_heads"),
        (["text.txt", "--n-heads", "8"], "heads of width 1; expected an even"),
        (["text.txt", "--peak", "1e9"], "step 1 is not finite.*peak of 1e.09"),
        (["text.txt", "--start-from", "none"], "no file none"),
        (["long.txt", "--context", "400000"], "memory"),
        (["text.txt", "--rotary-base", "nan"], "rotary_base"),
        (["text.txt", "--steps", "many"], "--steps"),
        (["text.txt", "--colour", "red"], "--colour"),
        (["text.txt", "--d-model", "2147483648"], "memory"),
        (["text.txt", "--batch-size", "100000000000"], "memory"),
        (["text.txt", "--d-ff", MUCH], "memory"),
        (["text.txt", "--n-layers", "1000000000"], "memory"),
    ],
)
def test_a_wrong_command_is_one_line(
    arguments, names, here, capsys, monkeypatch
):
    (here / "empty.txt").touch()
    (here / "short.txt").write_text("ten chars.")
    if "long.txt" in arguments:
        (here / "long.txt").write_text("a long text\n" * 40_000)
        monkeypatch.setattr(os, "sysconf", lambda name: 10_000)  # 100 MB
    (here / "bytes.bin").write_bytes(b"\xff\xfe\xff")
    (here / "b.checkpoint.safetensors").touch()
    for link in ("link", "c.checkpoint.safetensors"):
        (here / link).symlink_to("text.txt")
    before = files(here)
    assert command(*arguments) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(f"python -m attnbook: .*{names}.*\n", captured.err)
    assert captured.out == ""
    assert files(here) == before


def test_it_trains_where_the_system_tells_nothing_of_its_memory(
    here, monkeypatch
):
    """As on Windows."""
    monkeypatch.delattr(os, "sysconf")
    assert command("text.txt") == 0


def test_letters_that_a_screen_cannot_show_end_no_run(here, monkeypatch):
    """Where print writes to a file, Windows takes one of its own encodings."""
    (here / "text.txt").write_text("река и лодка. " * 50, "utf-8")
    shown = io.TextIOWrapper(io.BytesIO(), "cp1252")
    monkeypatch.setattr(sys, "stdout", shown)
    assert command("text.txt") == 0
    shown.flush()
    assert rb"\u0" in shown.buffer.getvalue()


def test_each_process_has_its_own_card(here, capsys, monkeypatch):
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: True)
    for name, value in (("LOCAL_RANK", 98), ("RANK", 0), ("WORLD_SIZE", 2)):
        monkeypatch.setenv(name, str(value))
    assert command("text.txt", "--device", "cuda:0") == 2
    assert "cuda:98" in capsys.readouterr().err


def test_an_interruption_is_one_line(here, capsys, monkeypatch):
    def interrupted(run, batches, checkpoint, **options):
        if checkpoint.name.startswith("a"):
            checkpoint.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "go_on", interrupted)
    assert command("text.txt") == 130
    assert "no checkpoint" in capsys.readouterr().err
    assert command("text.txt", "--out", "a.safetensors") == 130
    assert "a.checkpoint.safetensors" in capsys.readouterr().err


# A run that is resumed, and a model that is trained on


def test_a_finished_run_has_nothing_left_to_do(here, capsys):
    assert command("text.txt") == 0
    capsys.readouterr()
    before = files(here)
    assert command("text.txt", "--resume") == 0
    said = capsys.readouterr()
    assert "all its 4 steps" in said.out and "nothing is left" in said.out
    assert said.err == "" and files(here) == before
    assert command("text.txt", "--resume", "--overwrite") == 0
    assert files(here) == before


def test_a_resumed_run_overwrites_no_finished_model(here, capsys):
    """Neither one that is not its own, nor before its last step."""
    assert command("text.txt", "--seed", "1", "--out", "other") == 0
    other = (here / "other").read_bytes()
    assert command("text.txt") == 0
    (here / "model.safetensors").write_bytes(other)
    before = files(here)
    assert command("text.txt", "--resume") == 2
    said = capsys.readouterr().err
    assert "is not the model of this run, which has made 4 of its 4" in said
    assert "--overwrite" in said and files(here) == before
    assert command("text.txt", "--resume", "--overwrite") == 0
    assert (here / "model.safetensors").read_bytes() != other


def test_a_run_that_was_stopped_may_not_replace_a_model(
    here, capsys, monkeypatch
):
    go_on = program.go_on

    def stopped(run, batches, checkpoint, *, report, **options):
        def then(run):
            raise KeyboardInterrupt

        go_on(run, batches, checkpoint, report=then, **options)

    monkeypatch.setattr(program, "go_on", stopped)
    assert command("text.txt") == 130
    monkeypatch.setattr(program, "go_on", go_on)
    (here / "model.safetensors").write_bytes(
        (here / "model.checkpoint.safetensors").read_bytes()
    )
    assert command("text.txt", "--resume") == 2
    assert "has made 2 of its 4 steps" in capsys.readouterr().err
    (here / "model.safetensors").unlink()
    assert command("text.txt", "--resume") == 0


def test_a_run_cannot_be_made_longer_but_its_model_can_be_trained_on(
    here, capsys
):
    assert command("text.txt") == 0
    assert command("text.txt", "--resume", "--steps", "8") == 2
    said = capsys.readouterr().err
    assert "cannot be made longer" in said and "--start-from" in said
    start = "--start-from", "model.safetensors"
    assert command("text.txt", *start, "--out", "b.safetensors") == 0
    first, second = (
        files_of_run(f"{name}.checkpoint.safetensors")[0]["losses"]
        for name in ("model", "b")
    )
    assert second[0] < first[0] - 0.05
    assert load_model("b.safetensors").model.config.d_model == 8
    # It is resumed with the same model to start from, and not without.
    again = "text.txt", "--resume", "--out", "b.safetensors"
    assert command(*again, *start) == 0
    assert command(*again) == 2
    assert "of another run" in capsys.readouterr().err


def test_a_model_is_trained_on_only_as_it_is(here, capsys):
    assert command("text.txt") == 0
    (here / "other.txt").write_text("the boat left the Quay! " * 30)
    start = "--start-from", "model.safetensors", "--out", "b.safetensors"
    assert command("other.txt", *start) == 2
    assert "got '!Quy' besides" in capsys.readouterr().err
    # Its sizes need not be said, but must be right where they are.
    plain = [word for word in TINY if word not in ("--d-model", "8")]
    assert program.main([*plain, "text.txt", *start]) == 0
    wider = "--overwrite", "--d-model", "32"
    assert program.main([*plain, "text.txt", *start, *wider]) == 2
    assert "no --d-model, or 8 as in model" in capsys.readouterr().err
    bare = here / "bare.safetensors"
    save_model(bare, load_model("model.safetensors").model)
    assert command("text.txt", "--start-from", "bare.safetensors") == 2


def test_a_byte_order_mark_is_no_character(here):
    text = (here / "text.txt").read_text()
    (here / "marked.txt").write_text(text, "utf-8-sig")
    for name in ("text", "marked"):
        assert command(f"{name}.txt", "--out", f"{name}.safetensors") == 0
    one, two = (here / f"{n}.safetensors" for n in ("text", "marked"))
    assert one.read_bytes() == two.read_bytes()


def test_it_says_when_too_little_can_be_held_out(here, capsys):
    (here / "text.txt").write_text("the boat left. " * 10)
    assert command("text.txt") == 0
    said = capsys.readouterr().out
    assert "the held-out tenth of text.txt has 15 characters, not" in said
    assert "held out 0" not in said and "step 4: loss" in said


def test_a_model_with_dropout_writes_its_samples_without(here, capsys):
    assert command("text.txt", "--dropout", "0.5") == 0
    said = capsys.readouterr().out
    assert re.search(r"step 4: .*\n  '.{64}'\n", said)


def test_what_a_killed_run_left_half_written_is_removed(here):
    for end in ("safetensors", "checkpoint.safetensors"):
        (here / f".model.{end}.new-x1y2").write_bytes(b"half")
    others = [here / ".new-abc", here / ".other.safetensors.new-x1y2"]
    for other in others:
        other.write_bytes(b"somebody else's")
    assert command("text.txt") == 0
    assert sorted(here.glob(".*")) == sorted(others)


def test_a_folder_that_is_gone_is_one_line(here, capsys, monkeypatch):
    (here / "gone").mkdir()
    go_on = program.go_on

    def removed(*arguments, **options):
        shutil.rmtree(here / "gone")
        go_on(*arguments, **options)

    monkeypatch.setattr(program, "go_on", removed)
    assert command("text.txt", "--out", "gone/m.safetensors") == 2
    said = capsys.readouterr().err
    assert "gone/m.checkpoint.safetensors cannot be written" in said
    assert said.count("\n") == 1


def test_the_help_names_what_can_be_chosen(here, capsys):
    assert command("--help") == 0
    said = " ".join(capsys.readouterr().out.split())
    for kinds in (POSITIONS, NORMS, FEED_FORWARDS, PRECISIONS):
        assert ", ".join(kinds) in said
    assert "(default: None)" not in said
    assert "steps before the peak (default: a twentieth of the steps)" in said


def test_pieces_and_half_precision_can_be_asked_for(here):
    more = "--accumulation", "2", "--precision", "bfloat16"
    assert command("text.txt", *more) == 0
    about = load_model("model.safetensors").about
    assert about["recipe"]["accumulation"] == 2
    weights = load_model("model.safetensors").model.parameters()
    assert {p.dtype for p in weights} == {torch.float32}


# Where it writes


def test_two_runs_on_one_file_are_refused_in_one_line(here, capsys):
    for taken in ("model.safetensors", "model.checkpoint.safetensors"):
        with reserved(here / taken):
            before = files(here)
            assert command("text.txt") == 2
            assert files(here) == before
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1
        assert f"another run writes {taken}" in captured.err
    assert command("text.txt") == 0


def test_a_killed_run_leaves_no_lock(here, monkeypatch):
    path = here / "model.safetensors"
    root = {"PYTHONPATH": os.pathsep.join(p for p in os.sys.path if p)}
    with mock.patch.dict(os.environ, root):
        forkserver.ensure_running()
    assert killed.in_processes(killed.held_lock, path) == [-signal.SIGKILL]
    assert list(here.glob(".*lock"))  # its file, which holds nobody
    with reserved(path), pytest.raises(BlockingIOError, match="another run"):
        with reserved(path):
            pass
    assert not list(here.glob(".*lock"))
    # Its owner took it away, and another made it anew, before it was ours.
    lock = here / ".model.safetensors.lock"
    monkeypatch.setattr(
        places.fcntl, "flock", lambda *_: lock.unlink() or lock.touch()
    )
    with pytest.raises(BlockingIOError), reserved(path):
        pass


def test_what_cannot_be_written_is_found_out_before_training(
    here, capsys, monkeypatch
):
    opened = os.open

    def refused(path, *how, **more):
        if str(path).endswith(".lock"):
            raise PermissionError(13, "Permission denied")
        return opened(path, *how, **more)

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(program, "go_on", None)
    assert command("text.txt") == 2
    said = capsys.readouterr().err
    assert "model.safetensors cannot be written" in said
    assert said.count("\n") == 1


def test_no_file_of_somebody_else_is_touched(here):
    victim = here / "victim.txt"
    victim.write_text("dear to me")
    others = [
        here / f"model.checkpoint.safetensors{end}" for end in (".part", ".x")
    ]
    for other in others:
        other.symlink_to(victim)
    assert command("text.txt") == 0
    lock = here / ".b.safetensors.lock"
    lock.symlink_to(victim)
    assert command("text.txt", "--out", "b.safetensors") == 2
    assert victim.read_text() == "dear to me"
    assert all(other.is_symlink() for other in (*others, lock))


def test_the_checkpoint_is_there_before_the_report(here, monkeypatch):
    def broken(line):
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr(program.tqdm, "write", broken)
    assert command("text.txt") == 2
    load_model("model.checkpoint.safetensors")


def test_a_file_is_one_runs_alone_where_there_is_no_flock(here, monkeypatch):
    """As on Windows, which takes the file away when its process ends."""
    monkeypatch.setattr(places, "fcntl", None)
    path, lock = here / "a", here / ".a.lock"
    with reserved(path):
        assert lock.exists()
        with pytest.raises(BlockingIOError, match="another run"):
            with reserved(path):
                pass
    lock.unlink()
    with reserved(path):
        pass
