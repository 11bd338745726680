"""The tokenizer: the book's own, the hub's where it answers, and the way
from one to the other."""

import sys
import time
import types

import pytest
import torch
from huggingface_hub import constants

from attnbook import language
from attnbook.language import book_text, load_tokenizer, train_tokenizer
from attnbook.masks import positions
from attnbook.proof import agrees

TEXTS = ["The boat left the river bank", "One step", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(book_text())


def test_text_survives_the_round_trip(tokenizer):
    for text in ["The boat left", "naïve ☃ 2+2", *book_text()]:
        ids = tokenizer(text).input_ids
        assert tokenizer.decode(ids).strip() == text
        assert max(ids) < len(tokenizer)


def test_words_of_the_running_example_are_single_tokens(tokenizer):
    assert len(tokenizer(TEXTS[0]).input_ids) == 6


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_batch_is_padded_on_the_side_asked_for(side):
    tokenizer = train_tokenizer(book_text(), padding_side=side)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    real = batch.attention_mask
    agrees(batch.input_ids == tokenizer.pad_token_id, real == 0, name="pads")
    first = 0 if side == "right" else -1
    agrees(real[1, first], 1, name="side")
    agrees(positions(real)[1].max(), real[1].sum() - 1, name="count")


def test_training_is_the_same_each_time(tokenizer):
    assert train_tokenizer(book_text()).get_vocab() == tokenizer.get_vocab()


def test_offline_says_so_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv(language.OFFLINE, "1")
    assert load_tokenizer().padding_side == "left"
    assert capsys.readouterr().out == (
        "tokenizer: byte pairs, trained on the book's own stories\n"
    )


def test_a_silent_hub_is_knocked_at_once_and_not_waited_for(
    monkeypatch, capsys
):
    """Not even the name server answers. After one knock, with a limit of
    its own, nothing else may touch the network."""
    calls, waits = [], []
    join = language.threading.Thread.join

    def silent(*args, **kwargs):
        calls.append(args)
        time.sleep(2)
        raise OSError("no answer")

    def recorded(thread, timeout=None):
        waits.append(timeout)
        join(thread, 0.01)

    monkeypatch.delenv(language.OFFLINE, raising=False)
    monkeypatch.setattr(language.socket, "create_connection", silent)
    monkeypatch.setattr(language.threading.Thread, "join", recorded)
    load_tokenizer("nobody/nothing-here")
    assert len(calls) == 1 and waits == [1.5]
    assert capsys.readouterr().out.startswith("tokenizer: byte pairs")


class _FakeHub:
    """transformers' AutoTokenizer, with one tokenizer to be had."""

    def __init__(self, tokenizer):
        self.tokenizer, self.calls = tokenizer, []

    def from_pretrained(self, name, *, padding_side, local_files_only):
        self.calls.append((name, local_files_only))
        self.tokenizer.padding_side = padding_side
        return self.tokenizer


@pytest.fixture
def hub(monkeypatch):
    found = _FakeHub(train_tokenizer(book_text()))
    monkeypatch.delenv(language.OFFLINE, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(language, "_reachable", lambda address: True)
    monkeypatch.setitem(
        sys.modules, "transformers",
        types.SimpleNamespace(AutoTokenizer=found),
    )
    return found


@pytest.mark.parametrize("reachable", [True, False])
def test_the_hubs_tokenizer_is_taken_where_it_can_be_had(
    hub, monkeypatch, capsys, reachable
):
    """From the network, or without one from this machine."""
    hub.tokenizer.pad_token = None
    monkeypatch.setattr(language, "_reachable", lambda address: reachable)
    found = load_tokenizer("some/name", padding_side="right")
    assert found is hub.tokenizer and found.padding_side == "right"
    assert hub.calls == [("some/name", not reachable)]
    assert found.pad_token == found.eos_token  # some come without one
    assert constants.HF_HUB_OFFLINE is False  # as it was before
    assert capsys.readouterr().out == "tokenizer: some/name\n"


def test_a_reader_who_is_offline_by_choice_stays_so(hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    load_tokenizer("some/name")
    assert hub.calls == [("some/name", True)]


def test_an_address_that_refuses_is_not_reachable():
    assert not language._reachable(("127.0.0.1", 1))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: load_tokenizer(padding_side="top"),
         "padding has no side 'top'; expected 'left' or 'right'"),
        (lambda: train_tokenizer(["", " "]),
         "there is nothing to train on; expected some text; "
         "got 2 empty lines"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


def test_ids_are_integers(tokenizer):
    ids = tokenizer(TEXTS[:1], return_tensors="pt").input_ids
    assert ids.dtype == torch.int64
