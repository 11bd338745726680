"""Runs that are killed, resumed and shared end as if nothing had been."""

import dataclasses
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
from attnbook.text import Vocabulary
from attnbook.training import train


@pytest.fixture(scope="module", autouse=True)
def server():
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with mock.patch.dict(os.environ, path):
        forkserver.ensure_running()


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


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
    model, threads = small(dropout=0.2), torch.get_num_threads()
    torch.set_num_threads(1)  # as the other process
    losses = train(model, padded, RECIPE)
    torch.set_num_threads(threads)
    assert files.read(unbroken)[0]["losses"].tolist() == losses
    assert same(weights(model), weights(load_model(unbroken).model))


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


def test_killed_again_and_again(tmp_path, unbroken):
    path = tmp_path / "run.safetensors"
    for at in (4, 3, 2):  # counted from the resumption
        in_processes(
            killed.killed_run, path, "before a step", at, path.exists()
        )
    assert in_processes(killed.killed_run, path, "", 0, True) == [0]
    assert path.read_bytes() == unbroken.read_bytes()


def test_a_finished_run_resumed_changes_nothing(tmp_path, unbroken):
    path = tmp_path / "run.safetensors"
    path.write_bytes(unbroken.read_bytes())
    run = finish(small_run(), path, resume=True)
    assert path.read_bytes() == unbroken.read_bytes()
    assert same(weights(run.model), weights(load_model(path).model))
    assert len(run.losses) == RECIPE.steps and not run.model.training


def test_the_callers_random_numbers_stay(tmp_path):
    model, state = small(), torch.get_rng_state()
    finish(small_run(model), tmp_path / "run.safetensors")
    assert torch.equal(torch.get_rng_state(), state)


def test_a_run_that_breaks_down_keeps_the_last_good_checkpoint(tmp_path):
    path, run = tmp_path / "run.safetensors", small_run()

    def spoil(run):
        if len(run.losses) == 4:
            with torch.no_grad():
                run.model.token_embedding.weight[0, 0] = math.nan

    with pytest.raises(ValueError, match="broke down at step 4"):
        finish(run, path, report=spoil)
    found = load_model(path)
    assert torch.isfinite(found.model.token_embedding.weight).all()
    assert found.vocabulary == LETTERS
    assert len(files.read(path)[0]["losses"]) == 4


def renamed(old, new):
    return lambda tensors, about: tensors.update({new: tensors.pop(old)})


def given(**tensors):
    names = {"norm": "model.norm.weight"}
    return lambda t, a: t.update(
        {names.get(name, name): value for name, value in tensors.items()}
    )


AVERAGE = "optimizer.norm.weight.exp_avg"
STATE = torch.get_rng_state()


@pytest.mark.parametrize(
    "change, names",
    [
        (lambda t, a: t.pop(AVERAGE), AVERAGE),
        (given(more=torch.ones(1)), "more"),
        (renamed("model.norm.weight", "model.norm.gain"), "model.norm.weight"),
        (given(norm=torch.ones(7)), "model.norm.weight"),
        (given(norm=torch.ones(8).double()), "model.norm.weight"),
        (given(losses=torch.ones(8).double()), "losses"),  # of 7 steps
        (given(losses=torch.ones(0).double()), "losses"),
        (given(losses=torch.ones(2, 2).double()), "losses"),
        (lambda t, a: t.pop("losses"), "losses"),  # a finished model
        (given(**{"random.cpu": STATE.expand(2, -1)}), "random.cpu"),
        (lambda t, a: t["random.batches"].zero_(), "random"),
        (lambda t, a: t["random.cpu"].zero_(), "random"),
        (lambda t, a: a["config"].update(n_heads=4), "config"),
        (lambda t, a: a["recipe"].update(peak=0.5), "recipe.*peak"),
        (lambda t, a: a["vocabulary"].__setitem__(3, "new"), "vocabulary"),
        (lambda t, a: a.update(data="letters"), "data"),
        (lambda t, a: a.update(processes=2), "processes"),
        (lambda t, a: a.update(device="cuda"), "device"),
        (lambda t, a: a.pop("config"), "config"),
    ],
)
def test_a_checkpoint_is_judged_whole_before_anything_changes(
    change, names, tmp_path, unbroken
):
    path = tmp_path / "run.safetensors"
    tensors, about = files.read(unbroken)
    change(tensors, about)
    files.write(path, tensors, about)
    run = small_run()
    before, state = weights(run.model), torch.get_rng_state()
    batches = run.generator.get_state()
    with pytest.raises(ValueError, match=names) as error:
        run.resume(path)
    assert str(path) in str(error.value)
    assert same(weights(run.model), before)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(run.generator.get_state(), batches)
    assert not run.optimizer.state and not run.losses


def test_a_run_does_not_take_another_runs_checkpoint(unbroken):
    other = dataclasses.replace(RECIPE, seed=4)
    for run, name in (
        (small_run(recipe=other), "seed"),
        (small_run(d_model=4), "d_model"),
        (small_run(data="letters"), "letters"),
    ):
        with pytest.raises(ValueError, match=f"is of another run.*{name}"):
            run.resume(unbroken)
    run = small_run()
    run.about["vocabulary"] = list(Vocabulary("lmnopqrstuv"))
    with pytest.raises(ValueError, match="expected vocabulary"):
        run.resume(unbroken)
    with pytest.raises(FileNotFoundError):
        run.resume(unbroken.parent / "none.safetensors")


# Several processes


def test_two_processes_give_the_curve_of_one(tmp_path):
    for n in (1, 2):
        (tmp_path / str(n)).mkdir()
        codes = in_processes(killed.shared_run, tmp_path / str(n), n=n)
        assert codes == [0] * n
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
    with pytest.raises(ValueError, match="expected processes 1; got 2"):
        small_run(small(dropout=0.3, dtype=torch.float64)).resume(one)


def test_processes_that_do_not_divide_the_batch_are_refused(tmp_path):
    assert in_processes(killed.shared_run, tmp_path, n=3) == [0] * 3
    said = (tmp_path / "error").read_text()
    assert "multiple of 3; got 4" in said
    assert not (tmp_path / "run.safetensors").exists()
