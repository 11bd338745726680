"""Training: the recipe, the loop, checkpoints that survive, the command."""

import dataclasses
import io
import json
import math
import multiprocessing
import multiprocessing.forkserver as forkserver
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from attnbook import training
from attnbook.gpt import GPT, GPTConfig
from attnbook.run import checkpoints
from attnbook.run import command as program
from attnbook.text import Vocabulary
from attnbook.town import WORDS, Town, vocabulary
from attnbook.training import (
    Recipe,
    accuracy,
    check_free,
    decay_groups,
    learning_rate,
    load_model,
    loss_share,
    make_optimizer,
    mean_loss,
    save_model,
    train,
)
from notebooks import CHAPTERS
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

SMALL = GPTConfig(vocab_size=11, context=8, d_model=8, n_heads=2, n_layers=1)
RECIPE = Recipe(steps=7, batch_size=4, peak=0.01, warmup=2, clip=1.0, seed=3)
WORDS = Vocabulary([f"w{n}" for n in range(SMALL.vocab_size)])


def small(*, dtype=torch.float64, **changes):
    torch.manual_seed(0)
    return GPT(dataclasses.replace(SMALL, **changes)).to(dtype)


def padded(size, generator):
    """Sequences of uneven lengths, padded on the right."""
    tokens = torch.randint(11, (size, 8), generator=generator)
    targets = torch.randint(11, (size, 8), generator=generator)
    lengths = torch.randint(1, 9, (size, 1), generator=generator)
    return tokens, targets.where(torch.arange(8) < lengths, -100)


def held_out():
    return padded(9, torch.Generator().manual_seed(99))


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def same(one, other):
    assert one.keys() == other.keys()
    return all(torch.equal(one[name], other[name]) for name in one)


# The pieces


@pytest.mark.parametrize(
    "changes, error, message",
    [
        (
            {"steps": 0},
            ValueError,
            "steps is out of its range; expected at least 1; got 0",
        ),
        ({"batch_size": 0}, ValueError, "batch_size is out of its range"),
        ({"peak": 0.0}, ValueError, "peak is out of its range"),
        ({"peak": math.nan}, ValueError, "peak is out of its range"),
        ({"warmup": 1000}, ValueError, "expected 0 to steps - 1; got 1000"),
        ({"warmup": -1}, ValueError, "warmup is out of its range"),
        ({"final": 1.1}, ValueError, "final is out of its range"),
        ({"betas": (0.9, 1.0)}, ValueError, "betas is out of its range"),
        ({"betas": (0.9,)}, ValueError, "betas is out of its range"),
        ({"weight_decay": -0.1}, ValueError, "weight_decay is out of"),
        ({"clip": 0.0}, ValueError, "clip is out of its range"),
        ({"seed": -1}, ValueError, "seed is out of its range"),
        (
            {"steps": 10.0},
            TypeError,
            "steps is of the wrong type; expected int; got 10.0",
        ),
        ({"steps": True}, TypeError, "steps is of the wrong type"),
        ({"peak": "1e-3"}, TypeError, "peak is of the wrong type"),
        ({"betas": 0.9}, TypeError, "betas is of the wrong type"),
    ],
)
def test_a_recipe_is_checked(changes, error, message):
    with pytest.raises(error, match=re.escape(message)):
        Recipe(**changes)


def test_the_learning_rate_at_its_corners():
    recipe = Recipe(steps=101, warmup=10, peak=2.0, final=0.25)
    rates = [learning_rate(step, recipe) for step in range(recipe.steps)]
    assert rates[0] == 2 / 11
    assert rates[10] == max(rates) == 2
    assert rates[55] == pytest.approx((2 + 0.5) / 2)  # half way down
    assert rates[100] == min(rates[10:]) == 0.5
    assert learning_rate(0, Recipe(steps=5, warmup=0, peak=2.0)) == 2
    last = Recipe(steps=5, warmup=4, peak=2.0)  # no step left to fall
    assert learning_rate(4, last) == 2


@pytest.mark.parametrize("warmup, final", [(10, 0.1), (1, 0.0), (0, 0.5)])
def test_the_learning_rate_agrees_with_torch(warmup, final):
    recipe = Recipe(steps=60, warmup=warmup, peak=0.3, final=final)
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=recipe.peak)
    schedulers = torch.optim.lr_scheduler
    theirs = schedulers.SequentialLR(
        optimizer,
        [
            schedulers.LinearLR(
                optimizer,
                start_factor=1 / (warmup + 1),
                total_iters=max(1, warmup),
            ),
            schedulers.CosineAnnealingLR(
                optimizer,
                recipe.steps - 1 - warmup,
                eta_min=recipe.peak * final,
            ),
        ],
        milestones=[warmup],
    )
    for step in range(recipe.steps):
        [rate] = theirs.get_last_lr()
        assert learning_rate(step, recipe) == pytest.approx(rate, rel=1e-9)
        optimizer.step()
        theirs.step()


def test_only_matrices_decay():
    model = small()
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(3.0)
    recipe = dataclasses.replace(RECIPE, weight_decay=0.5, peak=0.1)
    optimizer = make_optimizer(model, recipe)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    after = {p.ndim: p.unique().tolist() for p in model.parameters()}
    assert after == {1: [3.0], 2: [pytest.approx(3 * (1 - 0.1 * 0.5))]}


def test_every_parameter_is_in_one_group_once():
    model = small()
    model.head = nn.Linear(8, 11, bias=False)
    model.head.weight = model.token_embedding.weight  # tied: two names
    model.norm.bias.requires_grad_(False)
    groups = decay_groups(model, 0.1)
    grouped = [p for group in groups for p in group["params"]]
    wanted = {id(p) for p in model.parameters() if p.requires_grad}
    assert len(grouped) == len(wanted)
    assert {id(p) for p in grouped} == wanted
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]


def test_uneven_shares_add_up_to_the_mean():
    model, (tokens, targets) = small(), held_out()
    total = (targets != -100).sum().item()
    whole = model.loss(tokens, targets)
    expected = torch.autograd.grad(whole, model.parameters())
    loss = 0.0
    for rows in (slice(0, 1), slice(1, 4), slice(4, 9)):
        share = loss_share(model(tokens[rows]), targets[rows], total)
        share.backward()  # gradients accumulate
        loss += share.item()
    assert loss == pytest.approx(whole.item(), rel=1e-12)
    for p, gradient in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-10, atol=1e-14)


def test_the_mean_loss_is_that_of_all_targets_without_dropout():
    model, (tokens, targets) = small(dropout=0.5), held_out()
    whole = model.eval().loss(tokens, targets).item()
    model.train()
    for batch_size in (1, 2, 9, 100):
        found = mean_loss(model, tokens, targets, batch_size=batch_size)
        assert found == pytest.approx(whole, rel=1e-12)
    assert model.training
    mean_loss(model.eval(), tokens, targets)
    assert not model.training


class Biased(nn.Module):
    """Always the same logits, a number for each word of the town; other
    ones in training mode."""

    def __init__(self, likes) -> None:
        super().__init__()
        logits = torch.zeros(len(WORDS))
        for word, logit in likes.items():
            logits[WORDS.index(word)] = logit
        self.logits = nn.Parameter(logits)

    def forward(self, tokens):
        sign = -1 if self.training else 1
        return (sign * self.logits).expand(*tokens.shape, -1)


def test_accuracy_counts_answers_that_beat_their_candidates():
    questions = Town().questions("agreement", 40, seed=1)
    plural = sum(q.answer == "are" for q in questions) / len(questions)
    assert 0 < plural < 1
    # The likeliest word of all is no candidate, and does not count.
    assert accuracy(Biased({"are": 2, "mira": 9}), questions) == plural
    assert accuracy(Biased({"is": 2}), questions) == 1 - plural


def test_accuracy_looks_at_the_word_after_the_prompt():
    questions = Town().questions("bank", 20, seed=2)
    words = vocabulary()

    class Oracle(Biased):
        """Right after each prompt, and wrong everywhere else."""

        def forward(self, tokens):
            logits = super().forward(tokens).clone()
            for row, q in zip(logits, questions):
                wrong = [w for w in q.candidates if w != q.answer]
                row[:, [words.number(w) for w in wrong]] = 1.0
                row[len(q.prompt) - 1, words.number(q.answer)] = 2.0
            return logits

    assert accuracy(Oracle({}), questions) == 1
    one_longer = [
        dataclasses.replace(q, prompt=[*q.prompt, q.answer]) for q in questions
    ]
    assert accuracy(Oracle({}), one_longer) == 0


@pytest.mark.parametrize("training", [True, False])
def test_accuracy_leaves_the_model_as_it_was(training):
    questions = Town().questions("agreement", 5, seed=3)
    model = Biased({"are": 2}).train(training)
    accuracy(model, questions)
    assert model.training == training


def test_accuracy_of_no_questions_is_an_error():
    message = "nothing to ask; expected at least one question; got none"
    with pytest.raises(ValueError, match=message):
        accuracy(small(), [])


# The loop


def test_the_loop_agrees_with_one_in_plain_torch():
    model, plain = small(), small()
    history = train(
        model, padded, RECIPE, held_out=held_out(), every=3, progress=False
    )
    matrices = [p for p in plain.parameters() if p.ndim == 2]
    vectors = [p for p in plain.parameters() if p.ndim == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": RECIPE.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=1.0,
        betas=RECIPE.betas,
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, RECIPE)
    )
    generator = torch.Generator().manual_seed(RECIPE.seed)
    for step in range(RECIPE.steps):
        tokens, targets = padded(RECIPE.batch_size, generator)
        loss = plain.loss(tokens, targets)
        optimizer.zero_grad()
        loss.backward()
        lengths = [p.grad.norm() for p in plain.parameters()]
        norm = torch.stack(lengths).norm().item()
        for p in plain.parameters():
            p.grad *= min(1, RECIPE.clip / (norm + 1e-6))  # as torch does
        optimizer.step()
        assert history.losses[step] == pytest.approx(loss.item(), rel=1e-9)
        assert history.norms[step] == pytest.approx(norm, rel=1e-9)
        assert history.rates[step] == schedule.get_last_lr()[0]
        schedule.step()
        if step + 1 in history.held_out:
            expected = plain.loss(*held_out()).item()
            found = history.held_out[step + 1]
            assert found == pytest.approx(expected, rel=1e-9)
    assert list(history.held_out) == [3, 6, 7]
    assert min(history.norms) < RECIPE.clip < max(history.norms)
    for ours, theirs in zip(
        model.parameters(), plain.parameters(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_a_run_has_its_own_random_numbers():
    runs = []
    for before, seed in ((5, 3), (6, 3), (5, 4)):
        model = small(dropout=0.3)
        torch.manual_seed(before)
        state = torch.get_rng_state()
        recipe = dataclasses.replace(RECIPE, seed=seed)
        runs.append(train(model, padded, recipe, progress=False))
        assert torch.equal(torch.get_rng_state(), state)
        assert not model.training
    assert runs[0] == runs[1] != runs[2]


def test_dropout_is_drawn_from_the_seed():
    def always(size, generator):
        return held_out()[0][:size], held_out()[1][:size]

    first = [
        train(
            small(dropout=0.3),
            always,
            dataclasses.replace(RECIPE, seed=seed),
            progress=False,
        ).losses[0]
        for seed in (3, 3, 4)
    ]
    assert first[0] == first[1] != first[2]


def test_each_step_is_told():
    told = []
    history = train(
        small(),
        padded,
        RECIPE,
        progress=False,
        on_step=lambda done, so_far: told.append((done, so_far.losses[-1])),
    )
    assert told == list(enumerate(history.losses, start=1))


@pytest.mark.parametrize(
    "batch, message",
    [
        (
            lambda n, g: (torch.zeros(n, 8).long(), torch.zeros(n, 7).long()),
            "tokens and targets do not fit; expected (B, T) both; got (4, 8) "
            "and (4, 7)",
        ),
        (
            lambda n, g: padded(n - 1, g),
            "the batch has another size; expected 4 sequences; got 3",
        ),
        (
            lambda n, g: (padded(n, g)[0], torch.full((n, 8), -100)),
            "there is nothing to learn; expected at least one target that is "
            "not -100; got none",
        ),
    ],
)
def test_a_bad_batch_is_named(batch, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        train(small(), batch, RECIPE, progress=False)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"every": 0}, "every is no number of steps; expected at least 1"),
        ({"every": 2.5}, "every is no number of steps; expected at least 1"),
        ({"resume": True}, "there is nothing to resume; expected a checkp"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        train(small(), padded, RECIPE, progress=False, **options)


def test_a_run_that_breaks_down_keeps_the_last_good_checkpoint(tmp_path):
    path, model = tmp_path / "run.safetensors", small()

    def spoil(done, history):
        if done == 4:
            with torch.no_grad():
                model.token_embedding.weight[0, 0] = math.nan

    with pytest.raises(ValueError, match="broke down at step 4; expected a"):
        train(
            model,
            padded,
            RECIPE,
            checkpoint=path,
            every=3,
            on_step=spoil,
            progress=False,
        )
    assert torch.isfinite(load_model(path).model.token_embedding.weight).all()
    assert (
        json.loads(safe_open(path, "pt").metadata()["attnbook"])["steps_done"]
        == 3
    )


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    "stderr, quiet, progress, shown",
    [
        (Terminal(), False, None, True),
        (Terminal(), True, None, False),
        (io.StringIO(), False, None, False),
        (io.StringIO(), True, True, True),
        (Terminal(), False, False, False),
    ],
)
def test_a_bar_is_for_people(monkeypatch, stderr, quiet, progress, shown):
    stderr = type(stderr)()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.delenv(training.QUIET, raising=False)
    if quiet:
        monkeypatch.setenv(training.QUIET, "1")
    train(small(), padded, RECIPE, progress=progress)
    assert ("7/7" in stderr.getvalue()) == shown
    assert bool(stderr.getvalue()) == shown


def test_a_notebook_has_a_bar(monkeypatch):
    notebook = type("OutStream", (io.StringIO,), {})
    notebook.__module__ = "ipykernel.iostream"
    monkeypatch.setattr(sys, "stderr", notebook())
    monkeypatch.delenv(training.QUIET, raising=False)
    train(small(), padded, RECIPE)
    assert "7/7" in sys.stderr.getvalue()


# Killed and resumed. The processes are forked from a server that has
# imported what they need (an optimiser wants torch._dynamo) and computed
# nothing, so each starts at once.

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["test_training", "torch._dynamo"])


@pytest.fixture(scope="module", autouse=True)
def server():
    path = {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    with mock.patch.dict(os.environ, path):
        forkserver.ensure_running()


def run_processes(target, *arguments, n=1):
    """Run `target(rank, *arguments)` n times at once: the exit codes."""
    started = [
        PROCESSES.Process(target=target, args=(rank, *arguments))
        for rank in range(n)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    return [process.exitcode for process in started]


def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def killed_run(rank, path, place, at, resume):
    """A run that dies at its `at`-th passage through a place."""
    torch.set_num_threads(1)
    passages = iter(range(1, 100))

    def its_time(here):
        return here == place and next(passages) == at

    def passing(here):
        if its_time(here):
            die()

    def batches(size, generator):
        passing("before a step")
        return padded(size, generator)

    def fsync(number):
        if its_time("while writing"):
            os.ftruncate(number, 100)
            die()

    def replace(*paths):
        passing("before the renaming")
        os.replace(*paths)
        passing("after the renaming")

    checkpoints.os = SimpleNamespace(
        environ=os.environ, fsync=fsync, replace=replace
    )
    train(
        small(dropout=0.2, dtype=torch.float32),
        batches,
        RECIPE,
        held_out=held_out(),
        checkpoint=path,
        resume=resume,
        every=2,
        vocabulary=WORDS,
        on_step=lambda *_: passing("after a step"),
        progress=False,
    )


PLACES = {
    "before a step": 7,
    "after a step": 7,
    "while writing": 4,
    "before the renaming": 4,
    "after the renaming": 4,
}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The bytes of the last checkpoint of a run that was never stopped."""
    path = tmp_path_factory.mktemp("unbroken") / "run.safetensors"
    assert run_processes(killed_run, path, "", 0, False) == [0]
    return path.read_bytes()


@pytest.mark.parametrize("place", PLACES)
def test_killed_anywhere_and_resumed_it_is_the_same_to_the_bit(
    place, tmp_path, unbroken
):
    for at in range(1, PLACES[place] + 1):
        path = tmp_path / f"{at}.safetensors"
        killed = run_processes(killed_run, path, place, at, False)
        assert killed == [-signal.SIGKILL]
        if not path.exists():  # too early for a checkpoint: from the start
            assert at <= 2
        again = run_processes(killed_run, path, "", 0, path.exists())
        assert again == [0]
        assert path.read_bytes() == unbroken
        assert not path.with_name(path.name + ".part").exists()


def test_killed_again_and_again(tmp_path, unbroken):
    path = tmp_path / "run.safetensors"
    for at in (4, 3, 2, 1):  # counted from the resumption
        killed = run_processes(
            killed_run, path, "after a step", at, path.exists()
        )
        assert killed == [-signal.SIGKILL]
    run_processes(killed_run, path, "", 0, True)
    assert path.read_bytes() == unbroken


def test_a_finished_run_resumed_changes_nothing(tmp_path, unbroken):
    path = tmp_path / "run.safetensors"
    path.write_bytes(unbroken)
    model = small(dtype=torch.float32, dropout=0.2)
    history = train(
        model,
        padded,
        RECIPE,
        checkpoint=path,
        resume=True,
        vocabulary=WORDS,
        progress=False,
    )
    assert path.read_bytes() == unbroken
    assert same(weights(model), weights(load_model(path).model))
    assert len(history.losses) == RECIPE.steps
    assert list(history.held_out) == [2, 4, 6, 7]


def test_the_tensors_have_readable_names(tmp_path, unbroken):
    path = tmp_path / "run.safetensors"
    path.write_bytes(unbroken)
    stored = load_file(path)
    name = "blocks.0.attention.query.weight"
    for key in ("model", "optimizer.exp_avg", "optimizer.exp_avg_sq"):
        assert stored[f"{key}.{name}"].shape == (8, 8)
    assert stored[f"optimizer.step.{name}"] == 7
    others = {n for n in stored if not n.startswith(("model.", "optimizer."))}
    assert others == {
        "generator.batches",
        "generator.cpu.0",
        "history.losses",
        "history.rates",
        "history.norms",
        "history.held_out",
    }


# Files that do not fit


def checkpoint(path, **options):
    """A checkpoint of a run that stopped after 4 of its 7 steps."""

    def stop(done, history):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            small(),
            padded,
            RECIPE,
            checkpoint=path,
            every=4,
            on_step=stop,
            vocabulary=WORDS,
            data="numbers",
            progress=False,
            **options,
        )


def resume(path, model=None, **changes):
    options = {"vocabulary": WORDS, "data": "numbers", "recipe": RECIPE}
    return train(
        model or small(),
        padded,
        checkpoint=path,
        resume=True,
        every=4,
        progress=False,
        **options | changes,
    )


def rewrite(path, change):
    """Change a file's tensors or metadata, its checksum with them."""
    tensors, about = checkpoints.read(path)
    change(tensors, about)
    checkpoints.write(path, tensors, about)


def renamed(old, new):
    def change(tensors, about):
        tensors[new] = tensors.pop(old)

    return change


NORM = "model.norm.weight"
FIRST = "optimizer.exp_avg.norm.weight"


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda t, a: t.pop(FIRST),
            f"does not hold the right tensors; expected also ['{FIRST}']; got "
            "instead none",
        ),
        (
            lambda t, a: t.update(more=torch.ones(1)),
            "expected also none; got instead ['more']",
        ),
        (
            renamed(NORM, "model.norm.gain"),
            f"expected also ['{NORM}']; got instead ['model.norm.gain']",
        ),
        (
            lambda t, a: t.update({NORM: torch.ones(7).double()}),
            "does not fit; expected (8,) torch.float64; got (7,) torch.float64",
        ),
        (
            lambda t, a: t.update({NORM: torch.ones(8)}),
            "does not fit; expected (8,) torch.float64; got (8,) torch.float32",
        ),
        (
            lambda t, a: t.update(
                {"history.rates": torch.ones(5, dtype=torch.float64)}
            ),
            "history.rates in",
        ),
        (
            lambda t, a: t.pop("generator.cpu.0"),
            "expected also ['generator.cpu.0']",
        ),
        (
            lambda t, a: a["config"].update(n_heads=4),
            "is of another run; expected config {'n_heads': 2}; got "
            "{'n_heads': 4}",
        ),
        (
            lambda t, a: a["recipe"].update(peak=0.5),
            "expected recipe {'peak': 0.01}; got {'peak': 0.5}",
        ),
        (
            lambda t, a: a["vocabulary"].__setitem__(3, "new"),
            "expected vocabulary 11 words, without ['new']; got 11 words, "
            "without ['w3']",
        ),
        (
            lambda t, a: a.update(data="letters"),
            "expected data numbers; got letters",
        ),
        (lambda t, a: a.update(processes=2), "expected processes 1; got 2"),
        (
            lambda t, a: a.update(device="cuda"),
            "expected device cpu; got cuda",
        ),
        (
            lambda t, a: a.pop("steps_done"),
            "cannot be resumed; expected a checkpoint; got a finished model",
        ),
        (
            lambda t, a: a.update(format=2),
            "has another format; expected version 1 of this book's; got 2",
        ),
    ],
)
def test_nothing_is_loaded_of_a_file_that_does_not_fit(
    change, message, tmp_path
):
    path = tmp_path / "run.safetensors"
    checkpoint(path)
    resume(path)  # it fits
    path.unlink()
    checkpoint(path)
    rewrite(path, change)
    before, model = path.read_bytes(), small()
    fresh = weights(model)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        resume(path, model)
    assert str(path) in str(error.value)
    assert same(weights(model), fresh)
    assert path.read_bytes() == before


def test_a_run_does_not_take_another_runs_checkpoint(tmp_path):
    path = tmp_path / "run.safetensors"
    checkpoint(path)
    other = dataclasses.replace(RECIPE, seed=4)
    with pytest.raises(ValueError, match=r"recipe {'seed': 4}; got {'seed'"):
        resume(path, recipe=other)
    with pytest.raises(ValueError, match=r"config {'d_model': 4}; got"):
        resume(path, small(d_model=4))
    with pytest.raises(ValueError, match="expected vocabulary None; got"):
        resume(path, vocabulary=None)
    with pytest.raises(ValueError, match="expected data letters; got num"):
        resume(path, data="letters")


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "model.safetensors"
    tiny = GPTConfig(vocab_size=3, context=2, d_model=2, n_heads=1, n_layers=1)
    torch.manual_seed(0)
    save_model(path, GPT(tiny), None, RECIPE)
    return path


def test_every_spoiled_byte_is_noticed(model_file):
    good = model_file.read_bytes()
    expected = load_model(model_file)
    spaces = 0
    for place in range(len(good)):
        spoiled = bytearray(good)
        spoiled[place] ^= 1
        model_file.write_bytes(spoiled)
        try:
            found = load_model(model_file)
        except ValueError as error:
            assert str(model_file) in str(error)
        else:  # a byte that says nothing
            assert found[1:] == expected[1:]
            assert same(weights(found.model), weights(expected.model))
            spaces += 1
    assert spaces < 8


def test_a_truncated_file_is_noticed(model_file):
    good = model_file.read_bytes()
    for length in (*range(0, len(good), 7), len(good) - 1):
        model_file.write_bytes(good[:length])
        with pytest.raises(ValueError, match="is corrupt; expected a whole"):
            load_model(model_file)
    model_file.write_bytes(good + b"more")
    with pytest.raises(ValueError, match="is corrupt; expected a whole"):
        load_model(model_file)


def test_other_files_are_not_models(tmp_path):
    missing = tmp_path / "none.safetensors"
    with pytest.raises(FileNotFoundError, match=f"no file {missing}; exp"):
        load_model(missing)
    with pytest.raises(FileNotFoundError, match=f"no file {missing}; exp"):
        resume(missing)
    with pytest.raises(FileNotFoundError, match=f"no file {tmp_path}; exp"):
        load_model(tmp_path)
    foreign = tmp_path / "foreign.safetensors"
    save_file({"model.norm.weight": torch.ones(8)}, foreign)
    with pytest.raises(ValueError, match="expected version 1 of this book's"):
        load_model(foreign)
    text = tmp_path / "text.safetensors"
    text.write_text("a text, and no tensors at all")
    with pytest.raises(ValueError, match="is corrupt; expected a whole safe"):
        load_model(text)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t, a: t.pop(NORM), f"expected also ['{NORM}']; got instead"),
        (
            lambda t, a: t.update(more=torch.ones(1)),
            "expected also none; got instead ['more']",
        ),
        (renamed(NORM, "model.norm.gain"), "instead ['model.norm.gain']"),
        (lambda t, a: t.update({NORM: torch.ones(7)}), "expected (8,)"),
        (
            lambda t, a: t.update({NORM: torch.ones(8).half()}),
            "expected (8,) torch.float32; got (8,) torch.float16",
        ),
        (lambda t, a: t.clear(), "does not hold the right tensors"),
        (
            lambda t, a: a["config"].update(vocab_size=10**12),
            "does not fit; expected (1000000000000, 8)",
        ),
        (lambda t, a: a["config"].update(n_heads=3), "does not describe a"),
        (lambda t, a: a["config"].update(width=3), "does not describe a"),
        (lambda t, a: a["recipe"].update(steps=0), "does not describe a"),
        (lambda t, a: a.update(config=None), "does not describe a model"),
        (lambda t, a: a.pop("vocabulary"), "does not describe a model"),
    ],
)
def test_a_model_that_does_not_fit_is_named(change, message, tmp_path):
    path = tmp_path / "model.safetensors"
    save_model(path, small(), WORDS, RECIPE)
    load_model(path)
    rewrite(path, change)
    with pytest.raises(ValueError, match=re.escape(message)) as error:
        load_model(path)
    assert str(path) in str(error.value)


def test_a_model_is_saved_and_loaded(tmp_path):
    path = tmp_path / "model.safetensors"
    model = small(positions="rotary", bias=False)
    save_model(path, model, WORDS, RECIPE, note="a test")
    state = torch.get_rng_state()
    found = load_model(path)
    assert torch.equal(torch.get_rng_state(), state)
    assert found.vocabulary == WORDS and found.note == "a test"
    assert found.recipe == RECIPE and found.model.config == model.config
    assert same(weights(found.model), weights(model.float()))
    assert all(p.requires_grad for p in found.model.parameters())
    assert not found.model.training
    tokens = held_out()[0]
    assert torch.equal(found.model(tokens), model.eval()(tokens))
    train(found.model, padded, RECIPE, progress=False)  # and goes on


def test_the_same_model_is_the_same_file(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for path in (one, two):
        save_model(path, small(), WORDS, RECIPE)
    assert one.read_bytes() == two.read_bytes()


def test_a_checkpoint_is_a_model_too(tmp_path):
    path = tmp_path / "run.safetensors"
    model = small()
    train(
        model,
        padded,
        RECIPE,
        checkpoint=path,
        vocabulary=WORDS,
        progress=False,
    )
    found = load_model(path)
    assert found.vocabulary == WORDS
    assert same(weights(found.model), weights(model))  # in float64


def test_the_towns_model_is_small_enough_to_be_kept(tmp_path):
    path = tmp_path / "town.safetensors"
    save_model(
        path,
        GPT(training.TOWN_CONFIG),
        training.language.vocabulary(),
        training.TOWN_RECIPE,
    )
    assert path.stat().st_size < 2_000_000
    assert training.TOWN_CONFIG.vocab_size == len(load_model(path).vocabulary)


def test_nothing_is_overwritten_unless_asked(tmp_path):
    path = tmp_path / "run.safetensors"
    path.write_text("dear to me")
    for write in (
        lambda: train(
            small(), padded, RECIPE, checkpoint=path, progress=False
        ),
        lambda: save_model(path, small(), WORDS, RECIPE),
    ):
        with pytest.raises(FileExistsError, match=f"^{path} exists; expect"):
            write()
        assert path.read_text() == "dear to me"
    train(
        small(),
        padded,
        RECIPE,
        checkpoint=path,
        overwrite=True,
        progress=False,
    )
    assert len(resume(path, vocabulary=None, data="").losses) == 7
    save_model(path, small(), WORDS, RECIPE, overwrite=True)
    assert load_model(path).vocabulary == WORDS


def test_a_place_that_is_none_is_named(tmp_path):
    nowhere = tmp_path / "none" / "run.safetensors"
    with pytest.raises(FileNotFoundError, match="there is no folder .*/none"):
        train(small(), padded, RECIPE, checkpoint=nowhere, progress=False)
    with pytest.raises(FileExistsError, match="is a folder; expected the"):
        check_free(tmp_path, overwrite=True)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "run.safetensors"
    save_model(path, small(), WORDS, RECIPE)
    before = path.read_bytes()

    def full(number):
        raise OSError("no space left")

    monkeypatch.setattr(checkpoints.os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        save_model(path, small(d_model=4), WORDS, RECIPE, overwrite=True)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


# Several processes


def joined_run(rank, folder, processes, steps, dropout, resume):
    """One of several processes of a run, stopped after so many steps."""
    torch.set_num_threads(1)
    if processes > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/meeting{steps}{resume}",
            rank=rank,
            world_size=processes,
        )

    def stop(done, history):
        if done == steps:
            raise KeyboardInterrupt

    def noted(path, *contents):
        (folder / f"wrote{rank}").touch()
        write(path, *contents)

    write, training.write = training.write, noted
    try:
        history = train(
            small(dropout=dropout),
            padded,
            RECIPE,
            held_out=held_out(),
            checkpoint=folder / "run.safetensors",
            resume=resume,
            every=2,
            on_step=stop,
            progress=False,
        )
    except KeyboardInterrupt:
        return
    except ValueError as error:
        (folder / f"error{rank}").write_text(str(error))
        return
    finally:
        if processes > 1:
            dist.destroy_process_group()
    (folder / f"history{rank}").write_text(
        json.dumps(dataclasses.asdict(history))
    )


def test_two_processes_give_the_curve_of_one(tmp_path):
    for n in (1, 2):
        folder = tmp_path / str(n)
        folder.mkdir()
        codes = run_processes(joined_run, folder, n, 0, 0.0, False, n=n)
        assert codes == [0] * n
    one, two, other = (
        json.loads((tmp_path / name).read_text())
        for name in ("1/history0", "2/history0", "2/history1")
    )
    assert two == other  # both know the whole of it
    written = [p.name for p in (tmp_path / "2").glob("wrote*")]
    assert written == ["wrote0"]  # by the first one alone
    for name in ("losses", "norms"):
        assert two[name] == pytest.approx(one[name], rel=1e-10)
    assert list(two["held_out"].values()) == pytest.approx(
        list(one["held_out"].values()), rel=1e-10
    )
    files = [load_model(tmp_path / f"{n}/run.safetensors") for n in (1, 2)]
    for ours, theirs in zip(
        *(file.model.parameters() for file in files), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-9)


def test_two_processes_are_resumed_to_the_bit(tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for folder, steps, resume in (
        (whole, 0, False),
        (parts, 5, False),
        (parts, 0, True),
    ):
        folder.mkdir(exist_ok=True)
        codes = run_processes(joined_run, folder, 2, steps, 0.3, resume, n=2)
        assert codes == [0, 0]
    one, two = (f / "run.safetensors" for f in (whole, parts))
    assert one.read_bytes() == two.read_bytes()
    stored = load_file(one)  # each process drops other numbers
    states = [stored[f"generator.cpu.{rank}"] for rank in (0, 1)]
    assert not torch.equal(*states)
    with pytest.raises(ValueError, match="expected processes 1; got 2"):
        train(
            small(dropout=0.3),
            padded,
            RECIPE,
            checkpoint=one,
            resume=True,
            progress=False,
        )


def test_processes_that_do_not_divide_the_batch_are_refused(tmp_path):
    codes = run_processes(joined_run, tmp_path, 3, 0, 0.0, False, n=3)
    assert codes == [0] * 3
    assert (tmp_path / "error0").read_text() == (
        "the processes do not divide the batch; expected a batch_size that "
        "is a multiple of 3; got 4"
    )
    assert not (tmp_path / "run.safetensors").exists()


# The command

TINY = (
    "--steps 4 --warmup 1 --every 2 --batch-size 2 --d-model 8 --n-heads 2 "
    "--n-layers 1 --context 16 --device cpu"
).split()


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("the boat left the river bank. " * 30)
    return tmp_path


def command(*arguments):
    try:
        return program.main([*TINY, *arguments])
    except SystemExit as error:  # of argparse
        return error.code


def files(folder):
    return {p.name: p.read_bytes() for p in folder.iterdir()}


def test_the_command_trains_on_a_text(here, capsys):
    state = torch.get_rng_state()
    assert command("--text", "text.txt", "--out", "a.safetensors") == 0
    assert torch.equal(torch.get_rng_state(), state)
    captured = capsys.readouterr()
    assert re.fullmatch(
        r"step 2: loss \d\.\d{4}, held out \d\.\d{4}\n"
        r"step 4: loss \d\.\d{4}, held out \d\.\d{4}\n"
        r"wrote a\.safetensors\n",
        captured.out,
    )
    assert captured.err == ""
    found = load_model("a.safetensors")
    letters = set((here / "text.txt").read_text())
    assert list(found.vocabulary) == sorted(letters)
    assert found.model.config.d_model == 8 and found.recipe.steps == 4
    assert found.model.token_embedding.weight.dtype == torch.float32
    assert found.note.startswith("trained on a text with sha256 ")
    same_again = load_model("a.checkpoint.safetensors").model
    assert same(weights(found.model), weights(same_again))


def test_the_command_trains_on_the_town(here, capsys):
    context = str(training.TOWN_CONFIG.context)
    assert (
        command(
            "--context", context, "--dtype", "float64", "--checkpoint", "run"
        )
        == 0
    )
    found = load_model("model.safetensors")
    assert "mira" in list(found.vocabulary)
    assert found.note == "trained on the town's stories"
    checkpoint = load_model("run")
    assert checkpoint.model.token_embedding.weight.dtype == torch.float64


def test_the_command_trains_on_shakespeare(here, capsys, monkeypatch):
    monkeypatch.setattr(program, "tiny_shakespeare", lambda: "to be " * 50)
    assert command("--shakespeare") == 0
    assert len(load_model("model.safetensors").vocabulary) == 5


def test_every_option_is_explained(here, capsys):
    assert command("--help") == 0
    help_text = capsys.readouterr().out
    sizes = {f.name for f in dataclasses.fields(GPTConfig)} - {"vocab_size"}
    names = sizes | {f.name for f in dataclasses.fields(Recipe)}
    assert names == program._HELP.keys()
    assert all("--" + n.replace("_", "-") in help_text for n in names)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["--text", "none.txt"],
            "there is no file none.txt; expected a text; got none",
        ),
        (["--text", "."], "there is no file .; expected a text; got none"),
        (
            ["--text", "empty.txt"],
            "empty.txt is empty; expected some text; got 0 characters",
        ),
        (
            ["--text", "short.txt"],
            "the text is too short for the context; expected a context of at "
            "least 1 and a longer text; got a context of 16 and a text of 9 "
            "tokens",
        ),
        (
            ["--text", "bytes.bin"],
            "bytes.bin is no text; expected UTF-8; got 'utf-8' codec can't "
            "decode byte 0xff in position 0: invalid start byte",
        ),
        (
            ["--device", "abacus"],
            "the device cannot be used; expected cpu, or cuda or cuda:N where "
            "there is such a card; got abacus",
        ),
        (
            ["--device", "cuda:99"],
            "the device cannot be used; expected cpu, or cuda or cuda:N where "
            "there is such a card; got cuda:99",
        ),
        (
            ["--device", "meta"],
            "the device cannot be used; expected cpu, or cuda or cuda:N where "
            "there is such a card; got meta",
        ),
        (
            ["--out", "none/model.safetensors"],
            "there is no folder none; expected one to write model.safetensors "
            "into; got none",
        ),
        (
            ["--out", ""],
            ". is a folder; expected the name of a file; got a folder",
        ),
        (
            ["--checkpoint", "text.txt"],
            "text.txt exists; expected a new name, or leave to resume from it "
            "or to overwrite it; got neither",
        ),
        (
            ["--out", "text.txt"],
            "text.txt exists; expected a new name, or leave to resume from it "
            "or to overwrite it; got neither",
        ),
        (
            ["--resume"],
            "there is no file model.checkpoint.safetensors; expected a model "
            "or a checkpoint; got none",
        ),
        (
            ["--steps", "0"],
            "steps is out of its range; expected at least 1; got 0",
        ),
        (
            ["--every", "0"],
            "every is no number of steps; expected at least 1; got 0",
        ),
        (
            ["--n-heads", "3"],
            "the heads do not divide the width; expected d_model a multiple of "
            "n_heads; got 8 and 3",
        ),
        (
            ["--context", "4", "--positions", "learned"],
            "the sequence is longer than the context; expected at most 4 "
            r"tokens; got \d+",
        ),
        (["--activation", "sine"], "there is no activation 'sine'; .*"),
        (["--steps", "many"], "argument --steps: invalid int value: 'many'"),
        (["--colour", "red"], "unrecognized arguments: --colour red"),
        (
            ["--text", "text.txt", "--shakespeare"],
            "argument --shakespeare: not allowed with argument --text",
        ),
    ],
)
def test_a_wrong_command_is_one_line(arguments, message, here, capsys):
    (here / "empty.txt").touch()
    (here / "short.txt").write_text("ten chars.")
    (here / "bytes.bin").write_bytes(b"\xff\xfe\xff")
    before = files(here)
    assert command(*arguments) == 2
    captured = capsys.readouterr()
    line = (
        message if "\\d" in message or ".*" in message else re.escape(message)
    )
    assert re.fullmatch(f"python -m attnbook.training: {line}\n", captured.err)
    assert captured.out == ""
    assert files(here) == before


def test_each_process_has_its_own_card(here, capsys, monkeypatch):
    monkeypatch.setattr(dist, "is_torchelastic_launched", lambda: True)
    monkeypatch.setenv("LOCAL_RANK", "98")
    for name in ("cuda", "cuda:0"):
        assert command("--device", name) == 2
        assert capsys.readouterr().err.endswith("; got cuda:98\n")


def killed_command(rank, folder, at, *more):
    torch.set_num_threads(1)
    os.chdir(folder)
    if at:
        calls = iter(range(1, 10))
        replace = os.replace

        def late(*paths):
            replace(*paths)
            if next(calls) == at:
                die()

        checkpoints.os.replace = late
    sys.exit(command("--text", "text.txt", "--dropout", "0.1", *more))


def test_an_interrupted_command_is_taken_up_again(here, capsys, monkeypatch):
    one, two = here / "one", here / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "text.txt").write_text((here / "text.txt").read_text())
    assert run_processes(killed_command, one, 0) == [0]
    assert run_processes(killed_command, two, 1) == [-signal.SIGKILL]
    assert not (two / "model.safetensors").exists()
    before = files(two)
    monkeypatch.chdir(two)
    assert command("--text", "text.txt", "--dropout", "0.1") == 2
    assert "checkpoint.safetensors exists; expected" in capsys.readouterr().err
    text = (two / "text.txt").read_text()
    (two / "text.txt").write_text(text[::-1])  # the same vocabulary
    assert command("--text", "text.txt", "--dropout", "0.1", "--resume") == 2
    assert "is of another run; expected data a" in capsys.readouterr().err
    (two / "text.txt").write_text(text)
    assert files(two) == before
    assert run_processes(killed_command, two, 0, "--resume") == [0]
    assert files(two) == files(one)


def test_an_interruption_is_one_line(here, capsys, monkeypatch):
    def interrupted(*arguments, on_step, checkpoint, **options):
        if checkpoint.parent == here:
            checkpoint.touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "train", interrupted)
    assert command() == 130
    assert capsys.readouterr().err == (
        "python -m attnbook.training: stopped; no checkpoint was written yet\n"
    )
    assert command("--out", str(here / "a.safetensors")) == 130
    assert capsys.readouterr().err == (
        "python -m attnbook.training: stopped; --resume goes on from "
        f"{here}/a.checkpoint.safetensors\n"
    )


def shell(*arguments, folder):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"PYTHONPATH": str(CHAPTERS), "OMP_NUM_THREADS": "1"},
    )


def test_from_a_shell_two_processes_give_the_curve_of_one(here):
    module = ["-m", "attnbook.training", *TINY, "--text", "text.txt"]
    # In float32 AdamW makes steps of rounding errors, where a gradient is 0.
    module += ["--dtype", "float64"]
    several = ["-m", "torch.distributed.run", "--nproc-per-node=2"]
    one = shell(*module, "--out", "one.safetensors", folder=here)
    two = shell(*several, *module, "--out", "two.safetensors", folder=here)
    assert one.returncode == two.returncode == 0, one.stderr + two.stderr
    # Printed once, by the first process; the same to four decimals.
    assert two.stdout == one.stdout.replace("one.", "two.")
    curves = [
        load_file(here / f"{name}.checkpoint.safetensors")["history.losses"]
        for name in ("one", "two")
    ]
    torch.testing.assert_close(*curves, rtol=1e-10, atol=0)
    models = [load_model(here / f"{n}.safetensors")[0] for n in ("one", "two")]
    for ours, theirs in zip(*(m.parameters() for m in models), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
