"""Text: vocabularies, windows, the tokenizer and Tiny Shakespeare, each
from where it can be had, and what stands in for it elsewhere."""

import hashlib
import http.server
import sys
import threading
import time
import types

import pytest
import torch
from attnbook import text
from attnbook.positions import token_positions
from attnbook.teach.proof import agrees
from attnbook.text import (
    Vocabulary,
    book_text,
    load_tokenizer,
    tiny_shakespeare,
    train_tokenizer,
    windows,
)
from huggingface_hub import constants
from hypothesis import given, settings
from hypothesis import strategies as st

TEXTS = ["The boat left the river bank", "One step", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(book_text())


def test_text_survives_the_round_trip(tokenizer):
    for line in ["The boat left", "naïve ☃ 2+2", *book_text()]:
        ids = tokenizer(line).input_ids
        assert tokenizer.decode(ids).strip() == line
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
    agrees(token_positions(real)[1].max(), real[1].sum() - 1, name="count")


def test_training_is_the_same_each_time(tokenizer):
    assert train_tokenizer(book_text()).get_vocab() == tokenizer.get_vocab()


def test_offline_says_so_in_one_line(monkeypatch, capsys):
    monkeypatch.setenv(text.OFFLINE, "1")
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
    join = text.threading.Thread.join

    def silent(*args, **kwargs):
        calls.append(args)
        time.sleep(2)
        raise OSError("no answer")

    def recorded(thread, timeout=None):
        waits.append(timeout)
        join(thread, 0.01)

    monkeypatch.delenv(text.OFFLINE, raising=False)
    monkeypatch.setattr(text.socket, "create_connection", silent)
    monkeypatch.setattr(text.threading.Thread, "join", recorded)
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
    monkeypatch.delenv(text.OFFLINE, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(text, "_reachable", lambda address: True)
    monkeypatch.setitem(
        sys.modules,
        "transformers",
        types.SimpleNamespace(AutoTokenizer=found),
    )
    return found


@pytest.mark.parametrize("reachable", [True, False])
def test_the_hubs_tokenizer_is_taken_where_it_can_be_had(
    hub, monkeypatch, capsys, reachable
):
    """From the network, or without one from this machine."""
    hub.tokenizer.pad_token = None
    monkeypatch.setattr(text, "_reachable", lambda address: reachable)
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
    assert not text._reachable(("127.0.0.1", 1))


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: load_tokenizer(padding_side="top"),
            "padding has no side 'top'; expected 'left' or 'right'",
        ),
        (
            lambda: train_tokenizer(["", " "]),
            "there is nothing to train on; expected some text; "
            "got 2 empty lines",
        ),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        call()


def test_ids_are_integers(tokenizer):
    ids = tokenizer(TEXTS[:1], return_tensors="pt").input_ids
    assert ids.dtype == torch.int64


@given(st.text(min_size=1))
@settings(deadline=None)
def test_characters_survive_the_round_trip(line):
    vocabulary = Vocabulary.of_characters(line)
    numbers = vocabulary.encode(line)
    assert vocabulary.decode(numbers) == line
    assert set(numbers) == set(range(len(vocabulary)))
    assert Vocabulary(list(vocabulary)) == vocabulary


def test_words_survive_the_round_trip():
    vocabulary = Vocabulary(["<s>", "the", "boat", "a"])
    assert vocabulary.encode("the  boat\nthe a") == [1, 2, 1, 3]
    assert vocabulary.decode(torch.tensor([0, 2])) == "<s> boat"
    assert list(vocabulary) == ["<s>", "the", "boat", "a"]
    assert vocabulary != Vocabulary(["the", "<s>", "boat", "a"])


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: Vocabulary([]), "expected words or characters"),
        (lambda: Vocabulary(["a", ""]), "expected words or characters"),
        (lambda: Vocabulary(["a", "b", "a"]), "got 'a' 2 times"),
        (lambda: Vocabulary(["the boat"]), "got 'the boat'"),
        (lambda: Vocabulary.of_characters(""), "the text is empty"),
        (lambda: Vocabulary(["a", "b"]).encode(""), "the text is empty"),
        (
            lambda: Vocabulary(["the", "boat"]).encode(" \n"),
            "the text is empty",
        ),
        (
            lambda: Vocabulary(["a", "b"]).encode("abxa"),
            "got 'x', character 2 of the text",
        ),
        (
            lambda: Vocabulary(["the", "boat"]).encode("the old boat"),
            "expected one of its 2 words; got 'old', word 1 of the text",
        ),
        (
            lambda: Vocabulary(["a", "b"]).decode([0, 2]),
            "expected 0 to 1; got 2",
        ),
        (lambda: Vocabulary(["a", "b"]).decode([-1]), "got -1"),
        (
            lambda: windows([1, 2, 3], 3),
            "got a context of 3 and a text of 3 tokens",
        ),
        (lambda: windows([], 1), "a text of 0 tokens"),
        (lambda: windows([1, 2, 3], 0), "got a context of 0"),
    ],
)
def test_bad_vocabularies_and_windows_are_named(call, message):
    with pytest.raises(ValueError) as error:
        call()
    assert message in str(error.value)


def test_windows_are_pieces_of_the_text_one_place_apart():
    """Every piece is drawn, the first and the last too, equally often."""
    numbers = torch.arange(10, 17)  # so that a token tells its place
    draw = windows(numbers, 4)
    tokens, targets = draw(3000, torch.Generator().manual_seed(0))
    assert tokens.dtype == targets.dtype == torch.int64
    first = tokens[:, :1]
    agrees(tokens, first + torch.arange(4), name="side by side")
    agrees(targets, tokens + 1, name="the next")
    starts = first.flatten().bincount()[10:]
    assert len(starts) == 3 and starts.min() > 900
    again, _ = draw(3000, torch.Generator().manual_seed(0))
    agrees(again, tokens, name="the same seed")


TEXT = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"


@pytest.fixture
def host(monkeypatch, tmp_path):
    """A host on this machine that has a short Tiny Shakespeare."""
    asked = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self):  # noqa: N802, the name is http.server's
            asked.append(self.path)
            self.send_response(server.status)
            self.end_headers()
            self.wfile.write(server.data)

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.data, server.status, server.asked = TEXT, 200, asked
    server.kept = tmp_path / "attnbook" / "tiny_shakespeare.txt"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.delenv(text.OFFLINE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(
        text, "SHAKESPEARE", f"http://127.0.0.1:{server.server_port}/it"
    )
    monkeypatch.setattr(
        text, "SHAKESPEARE_SHA256", hashlib.sha256(TEXT).hexdigest()
    )
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


SHAKESPEARES = "text: Tiny Shakespeare\n"
OURS = "text: the book's own stories\n"


def test_tiny_shakespeare_is_fetched_once_and_kept(host, capsys):
    assert tiny_shakespeare() == TEXT.decode()
    assert host.kept.read_bytes() == TEXT
    assert tiny_shakespeare() == TEXT.decode()
    assert host.asked == ["/it"]  # the second time it was at hand
    assert capsys.readouterr().out == 2 * SHAKESPEARES
    assert [p.name for p in host.kept.parent.iterdir()] == [host.kept.name]


def test_a_spoilt_copy_is_fetched_again(host, capsys):
    host.kept.parent.mkdir()
    host.kept.write_bytes(TEXT[:-1])
    assert tiny_shakespeare() == TEXT.decode()
    assert host.kept.read_bytes() == TEXT


def test_another_text_is_not_used_and_not_kept(host, capsys):
    host.data = TEXT + b"\n"
    with pytest.warns(UserWarning, match="is not Tiny Shakespeare") as found:
        assert tiny_shakespeare().splitlines() == book_text()
    assert hashlib.sha256(host.data).hexdigest() in str(found[0].message)
    assert found[0].filename == __file__
    assert not host.kept.exists()
    assert capsys.readouterr().out == OURS


def test_a_host_without_the_text_is_no_error(host, capsys):
    host.status = 404
    assert tiny_shakespeare().splitlines() == book_text()
    assert capsys.readouterr().out == OURS


def test_a_host_that_is_silent_is_not_waited_for(host, monkeypatch, capsys):
    monkeypatch.setattr(text, "_reachable", lambda address: False)
    assert tiny_shakespeare().splitlines() == book_text()
    assert host.asked == [] and capsys.readouterr().out == OURS


def test_offline_asks_nobody_and_looks_nowhere(host, monkeypatch, capsys):
    tiny_shakespeare()
    monkeypatch.setenv(text.OFFLINE, "1")
    assert tiny_shakespeare().splitlines() == book_text()
    assert host.asked == ["/it"]
    assert capsys.readouterr().out == SHAKESPEARES + OURS


def test_where_nothing_can_be_kept_it_is_used_all_the_same(host, tmp_path):
    (tmp_path / "attnbook").write_text("a file where a folder should be")
    assert tiny_shakespeare() == TEXT.decode()
