"""Runs that are killed, resumed and shared end as if nothing had been."""

import math
import os
import signal
import sys
from multiprocessing import forkserver
from unittest import mock

import killed
import pytest
import torch
from killed import (
    LETTERS,
    RECIPE,
    finish,
    in_processes,
    padded,
    small,
    small_run,
)

from attnbook import files
from attnbook.pretrained import load_model
from attnbook.run.checkpoints import checksum
from attnbook.training import train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def server():
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with mock.patch.dict(os.environ, path):
        forkserver.ensure_running()


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The last checkpoint of a run that was never stopped."""
    path = tmp_path_factory.mktemp("unbroken") / "run.safetensors"
    assert in_processes(killed.killed_run, path) == [0]
    return path


def test_a_run_makes_the_steps_of_the_plain_loop(unbroken):
    model = small(dropout=0.2)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the other process
    losses = train(model, padded, RECIPE)
    torch.set_num_threads(threads)
    assert files.read(unbroken)[0]["losses"].tolist() == losses
    assert same(model.state_dict(), load_model(unbroken).model.state_dict())


PLACES = {
    "before a step": (1, 3, 6, 7),
    "while writing": (1, 2, 4),
    "before the renaming": (1, 3),
    "after the renaming": (1, 2, 4),
}


@pytest.mark.parametrize("place", PLACES)
def test_killed_anywhere_and_resumed_it_is_the_same_to_the_bit(
    place, tmp_path, unbroken
):
    for at in PLACES[place]:
        path = tmp_path / f"{at}.safetensors"
        died = in_processes(killed.killed_run, path, place, at)
        assert died == [-signal.SIGKILL]
        there = path.exists()  # else it was too early for a checkpoint
        assert there or at <= 2
        assert in_processes(killed.killed_run, path, "", 0, there) == [0]
        assert path.read_bytes() == unbroken.read_bytes()


def test_a_finished_run_resumed_changes_nothing(tmp_path, unbroken):
    path = tmp_path / "run.safetensors"
    path.write_bytes(unbroken.read_bytes())
    run = finish(small_run(), path, resume=True)
    assert path.read_bytes() == unbroken.read_bytes()
    stored = load_model(path).model.state_dict()
    assert same(run.model.state_dict(), stored)
    assert len(run.losses) == RECIPE.steps and not run.model.training


def test_a_run_that_breaks_down_keeps_the_last_good_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    run = small_run()

    def spoil(run):
        if len(run.losses) == 4:
            with torch.no_grad():
                run.model.token_embedding.weight[0, 0] = math.nan

    with pytest.raises(ValueError, match="step 4"):
        finish(run, path, report=spoil)
    found = load_model(path)
    assert torch.isfinite(found.model.token_embedding.weight).all()
    assert list(found.vocabulary) == list(LETTERS)
    assert len(files.read(path)[0]["losses"]) == 4


def given(name, tensor):
    return lambda tensors, about: tensors.update({name: tensor})


NORM, AVERAGE = "model.norm.weight", "optimizer.norm.weight.exp_avg"
STATE = torch.get_rng_state()


@pytest.mark.parametrize(
    "change, names",
    [
        (lambda t, a: t.pop(AVERAGE), AVERAGE),
        (given("more", torch.ones(1)), "more"),
        (given(NORM, torch.ones(7)), NORM),
        (given(NORM, torch.ones(8).double()), NORM),
        (given("losses", torch.ones(8).double()), "losses"),  # of 7 steps
        (given("losses", torch.ones(2, 2).double()), "losses"),
        (lambda t, a: t.pop("losses"), "losses"),  # a finished model
        (given("random.cpu", STATE.expand(2, -1)), "random.cpu"),
        (lambda t, a: t["random.batches"].zero_(), "random"),
        (lambda t, a: t["random.cpu"].zero_(), "random"),
        (lambda t, a: a["config"].update(n_heads=4), "config"),
        (lambda t, a: a["recipe"].update(peak=0.5), "recipe.*peak"),
        (lambda t, a: a["recipe"].pop("peak"), "recipe.*peak.*nothing"),
        (lambda t, a: a["recipe"].update(more=1), "recipe.*more"),
        (lambda t, a: a["recipe"].update(steps=4), "longer.*--start-from"),
        (lambda t, a: a["vocabulary"].__setitem__(3, "new"), "vocabulary"),
        (lambda t, a: a.update(data="letters"), "data"),
        (lambda t, a: a.update(processes=2), "processes"),
        (lambda t, a: a.pop("config"), "config"),
    ],
)
def test_a_checkpoint_is_judged_whole_before_anything_changes(
    change, names, tmp_path, unbroken
):
    path = tmp_path / "run.safetensors"
    tensors, about = files.read(unbroken)
    change(tensors, about)
    about["sha256"] = checksum(tensors)  # it is not the checksum that tells
    files.write(path, tensors, about)
    run = small_run()

    def everything():
        states = {n: one.get_state() for n, one in run.randoms.items()}
        return {n: t.clone() for n, t in (run.tensors | states).items()}

    before = everything()
    with pytest.raises(ValueError, match=names) as error:
        run.resume(path)
    assert str(path) in str(error.value)
    assert same(everything(), before) and not run.losses


@pytest.mark.parametrize("name", ["weights", "averages", "losses", "random"])
def test_one_flipped_bit_is_noticed(name, tmp_path, unbroken):
    """The file is whole and of this run, but a number is another."""
    path = tmp_path / "run.safetensors"
    tensors, about = files.read(unbroken)
    tensor = {
        "weights": tensors["model.token_embedding.weight"],
        "averages": tensors[AVERAGE],
        "losses": tensors["losses"],
        "random": tensors["random.batches"],
    }[name]
    tensor.view(torch.uint8).flatten()[-1] ^= 1
    files.write(path, tensors, about)
    run = small_run()
    before = {name: t.clone() for name, t in run.tensors.items()}
    with pytest.raises(ValueError, match="run.safetensors is damaged"):
        run.resume(path)
    assert same(run.tensors, before) and not run.losses


def test_a_checksum_hangs_on_names_shapes_and_types():
    x = torch.arange(4.0)
    same_bits = [
        {"a": x},
        {"b": x},
        {"a": x.reshape(2, 2)},
        {"a": x.view(torch.int32)},
        {"a": x[:2], "b": x[2:]},
    ]
    assert len({checksum(tensors) for tensors in same_bits}) == 5
    assert checksum({"a": x, "b": x}) == checksum({"b": x, "a": x})


def test_a_model_in_evaluation_mode_is_trained_with_its_dropout(tmp_path):
    losses = []
    for training in (True, False):
        run = small_run(small(dropout=0.5).train(training))
        path = tmp_path / f"{training}.safetensors"
        losses.append(finish(run, path).losses)
    assert losses[0] == losses[1]
    run = small_run(small(dropout=0.0))
    assert finish(run, tmp_path / "without.safetensors").losses != losses[0]


# Several processes


@pytest.mark.parametrize("pieces", [1, 2])
def test_two_processes_give_the_curve_of_one(tmp_path, pieces):
    """Also where each computes its rows in two pieces."""
    for n in (1, 2):
        folder = tmp_path / str(n)
        folder.mkdir()
        how = 0.0, 0, False, pieces if n > 1 else 1
        assert in_processes(killed.shared_run, folder, *how, n=n) == [0] * n
    one, two = (
        files.read(tmp_path / f"{n}/run.safetensors")[0] for n in (1, 2)
    )
    torch.testing.assert_close(
        two["losses"], one["losses"], rtol=1e-10, atol=0
    )
    for name in one:
        if name.startswith("model."):
            torch.testing.assert_close(
                two[name], one[name], rtol=1e-6, atol=1e-9
            )


def test_two_processes_are_resumed_to_the_bit(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder, *how, codes in (
        (whole, 0, False, [0, 0]),
        (parts, 4, False, [5, 5]),
        (parts, 0, True, [0, 0]),
    ):
        folder.mkdir(exist_ok=True)
        found = in_processes(killed.shared_run, folder, 0.3, *how, n=2)
        assert found == codes
    one, two = (f / "run.safetensors" for f in (whole, parts))
    assert one.read_bytes() == two.read_bytes()
    states = files.read(one)[0]["random.cpu"]
    assert not torch.equal(*states)  # each drops other numbers


def test_processes_that_do_not_divide_the_batch_are_refused(tmp_path):
    assert in_processes(killed.shared_run, tmp_path, n=3) == [0] * 3
    assert "multiple of 3" in (tmp_path / "error").read_text()
    how = 0.0, 0, False, 4  # four pieces of one sequence
    assert in_processes(killed.shared_run, tmp_path, *how, n=2) == [0] * 2
    assert "multiple of 8" in (tmp_path / "error").read_text()
    assert not (tmp_path / "run.safetensors").exists()
