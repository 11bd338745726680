"""The command that lets a trained model write."""

import re

import pytest
import torch

from attnbook.generate import Sampling, complete
from attnbook.gpt import GPT, GPTConfig
from attnbook.pretrained import save_model
from attnbook.run import sample
from attnbook.vocabulary import Vocabulary

LETTERS = Vocabulary("\n abdeht")


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model that knows texts of eight characters, in a file."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    sizes = dict(vocab_size=len(LETTERS), context=8, d_model=8, n_heads=2)
    model = GPT(GPTConfig(**sizes, n_layers=1, initial_std=0.5)).eval()
    save_model("model.safetensors", model, LETTERS)
    return model


def written(capsys, *arguments):
    assert sample.main(["model.safetensors", *arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def test_it_writes_what_the_library_writes(model, capsys):
    """Also far beyond the context, where the model reads a window."""
    begun = LETTERS.encode("the ")
    how = "--length", "60", "--seed", "3"
    for options, sampling in (
        ((), Sampling(temperature=0.8)),
        (("--temperature", "0"), Sampling()),
        (
            ("--temperature", "1", "--top-k", "4", "--top-p", "0.9"),
            Sampling(1.0, top_k=4, top_p=0.9),
        ),
        (("--min-p", "0.2"), Sampling(temperature=0.8, min_p=0.2)),
    ):
        [new] = complete(model, [begun], 60, sampling=sampling, seed=3)
        said = written(capsys, "--prompt", "the ", *how, *options)
        assert said == "the " + LETTERS.decode(new) + "\n"


def test_a_seed_gives_the_same_and_another_another(model, capsys):
    texts = [written(capsys, "--seed", seed) for seed in ("1", "1", "2")]
    assert texts[0] == texts[1] != texts[2]
    assert len(texts[0]) == 501  # and the line's end
    assert written(capsys) == written(capsys, "--seed", "0")


def test_a_beginning_longer_than_the_context_is_said(model, capsys):
    assert sample.main(["model.safetensors", "--prompt", "the the the"]) == 0
    said = capsys.readouterr()
    assert "11 tokens" in said.err and "texts of 8" in said.err
    assert said.out.startswith("the the the")


def test_words_have_spaces_between_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = Vocabulary(["the", "boat", "left"])
    sizes = dict(vocab_size=3, context=8, d_model=8, n_heads=2, n_layers=1)
    save_model("model.safetensors", GPT(GPTConfig(**sizes)), words)
    said = written(capsys, "--prompt", "the boat", "--length", "5")
    assert re.fullmatch(r"the boat( (the|boat|left)){5}\n", said)


@pytest.mark.parametrize(
    "arguments, names",
    [
        (["none.safetensors"], "no file none.safetensors"),
        (["bare.safetensors"], "bare.safetensors has no vocabulary"),
        (["model.safetensors", "--prompt", "xyz"], "'x'"),
        (["model.safetensors", "--length", "0"], "--length"),
        (["model.safetensors", "--seed", "-1"], "seed"),
        (["model.safetensors", "--temperature", "-1"], "temperature"),
        (["model.safetensors", "--top-k", "0"], "top_k"),
        (["model.safetensors", "--top-p", "2"], "top_p"),
        (["model.safetensors", "--device", "abacus"], "abacus"),
        (["model.safetensors", "--colour", "red"], "--colour"),
        ([], "model"),
    ],
)
def test_what_cannot_be_is_one_line(model, arguments, names, capsys):
    save_model("bare.safetensors", model)
    try:
        code = sample.main(arguments)
    except SystemExit as error:  # of argparse
        code = error.code
    said = capsys.readouterr()
    assert code == 2 and said.out == ""
    pattern = f"python -m attnbook sample: .*{names}.*\n"
    assert re.fullmatch(pattern, said.err)
