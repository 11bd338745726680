"""Text: vocabularies, windows, the tokenizer and Tiny Shakespeare, each
from where it can be had, and what stands in for it elsewhere."""

import contextlib
import hashlib
import socketserver
import threading
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attnbook import text
from attnbook.teach.proof import agrees
from attnbook.teach.tokenizer import train_tokenizer
from attnbook.text import (
    Vocabulary,
    book_text,
    tiny_shakespeare,
    windows,
)

TEXTS = ["The boat left the river bank", "One step", ""]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(book_text())


def test_text_survives_the_round_trip(tokenizer):
    for line in ["The boat left", "naïve ☃ 2+2", *book_text()]:
        ids = tokenizer(line).input_ids
        assert tokenizer.decode(ids).strip() == line
        assert max(ids) < len(tokenizer)


@pytest.mark.parametrize("side, first", [("left", -1), ("right", 0)])
def test_a_batch_is_padded_on_the_side_asked_for(side, first):
    tokenizer = train_tokenizer(book_text())
    tokenizer.padding_side = side
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    real = batch.attention_mask
    agrees(batch.input_ids == tokenizer.pad_token_id, real == 0, name="pads")
    agrees(real[1, first], 1, name="side")


def test_training_is_the_same_each_time(tokenizer):
    assert train_tokenizer(book_text()).get_vocab() == tokenizer.get_vocab()


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
    assert "boat" in vocabulary and "bank" not in vocabulary


@pytest.mark.parametrize(
    "call, names",
    [
        (lambda: Vocabulary([]), "tokens"),
        (lambda: Vocabulary(["a", ""]), "''"),
        (lambda: Vocabulary(["a", "b", "a"]), "'a'"),
        (lambda: Vocabulary(["the boat"]), "'the boat'"),
        (lambda: Vocabulary(["the", "boat"]).encode(" \n"), "text"),
        (lambda: Vocabulary(["a", "b"]).encode("abxa"), "'x'"),
        (lambda: Vocabulary(["the", "boat"]).encode("the old"), "'old'"),
        (lambda: Vocabulary(["a", "b"]).decode([0, 2]), "number.*2"),
        (lambda: Vocabulary(["a", "b"]).decode([-1]), "number.*-1"),
        (lambda: windows([1, 2, 3], 3), "text"),
        (lambda: windows([1, 2, 3], 0), "context"),
    ],
)
def test_bad_vocabularies_and_windows_are_named(call, names):
    with pytest.raises(ValueError, match=names):
        call()


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


# Tiny Shakespeare, from a host on this machine that has a short one.

TEXT = b"First Citizen:\nBefore we proceed any further, hear me speak.\n"
WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"


@pytest.fixture
def host(monkeypatch, tmp_path):
    """`answers`, one for each connection: bytes, or a generator of them."""

    class Answer(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.recv(4096)
            answer = server.answers.pop(0)
            parts = [answer] if isinstance(answer, bytes) else answer
            with contextlib.suppress(OSError):
                for part in parts:
                    self.request.sendall(part)
                    server.sent += len(part)

    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    server.answers, server.sent = [WHOLE % (len(TEXT), TEXT)], 0
    server.kept = tmp_path / "attnbook" / "tiny_shakespeare.txt"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    monkeypatch.delenv(text.OFFLINE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(text, "SHAKESPEARE", f"http://127.0.0.1:{port}/it")
    monkeypatch.setattr(text, "SHAKESPEARE_BYTES", len(TEXT))
    digest = hashlib.sha256(TEXT).hexdigest()
    monkeypatch.setattr(text, "SHAKESPEARE_SHA256", digest)
    yield server
    server.shutdown()
    server.server_close()


SHAKESPEARES = "text: Tiny Shakespeare\n"
OURS = "text: the book's own stories\n"


def test_tiny_shakespeare_is_fetched_once_and_kept(host, capsys):
    assert tiny_shakespeare() == TEXT.decode()
    assert host.kept.read_bytes() == TEXT
    assert tiny_shakespeare() == TEXT.decode()  # no second answer is there
    assert capsys.readouterr().out == 2 * SHAKESPEARES
    assert [p.name for p in host.kept.parent.iterdir()] == [host.kept.name]


def test_a_spoilt_copy_is_fetched_again(host):
    host.kept.parent.mkdir()
    host.kept.write_bytes(TEXT[:-1])
    assert tiny_shakespeare() == TEXT.decode()
    assert host.kept.read_bytes() == TEXT


def endless():
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    for _ in range(10_000):
        yield b"x" * 2**16


def dripping():
    yield b"HTTP/1.1 200 OK\r\n\r\n"
    for _ in range(100):
        time.sleep(0.1)
        yield b"x"


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE % (len(TEXT) + 1, TEXT + b"\n"),
        WHOLE % (len(TEXT) + 9, TEXT[:9]),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 404 Not Found\r\n\r\n",
        b"no HTTP at all",
        b"",
        endless,
        dripping,
    ],
    ids=lambda a: getattr(a, "__name__", repr(a)[:40]),
)
def test_a_host_that_misbehaves_is_no_error(host, answer, capsys):
    host.answers = [answer() if callable(answer) else answer]
    seconds = 0.5 if answer is dripping else 30
    assert tiny_shakespeare(seconds=seconds).splitlines() == book_text()
    assert capsys.readouterr().out == OURS
    assert not host.kept.exists()
    # No more is read than there should be, and no longer.
    assert host.sent < (60 if answer is dripping else 2**24)
    assert len(host.answers) == 0


def test_nobody_is_asked_offline(host, monkeypatch, capsys):
    tiny_shakespeare()
    monkeypatch.setenv(text.OFFLINE, "1")
    assert tiny_shakespeare().splitlines() == book_text()
    assert capsys.readouterr().out == SHAKESPEARES + OURS


def test_where_nothing_can_be_kept_it_is_used_all_the_same(host, tmp_path):
    (tmp_path / "attnbook").write_text("a file where a folder should be")
    assert tiny_shakespeare() == TEXT.decode()
