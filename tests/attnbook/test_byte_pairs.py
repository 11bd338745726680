"""Published tokenizers of byte pairs, held against the `tokenizers` library.

One is trained here by that library, on a small text; the other is SmolLM2's,
where it is installed.
"""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from many_texts import texts
from real_models import needs_smollm2, smollm2_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from tokenizers.pre_tokenizers import ByteLevel, Digits

from attnbook import gguf
from attnbook.byte_pairs import BytePairs, byte_letters, bytes_of
from attnbook.text import book_text


def theirs_with(model, digits_alone):
    """A tokenizer of the library, cut as ours and with its decoder."""
    found = Tokenizer(model)
    cuts = [ByteLevel(add_prefix_space=False)]
    if digits_alone:
        cuts.insert(0, Digits(individual_digits=True))
    found.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    found.decoder = decoders.ByteLevel()
    return found


@pytest.fixture(scope="module", params=[False, True], ids=["GPT-2", "SmolLM"])
def trained(request):
    """Ours and theirs, with merges that the library has learned."""
    theirs = theirs_with(models.BPE(), request.param)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    theirs.train_from_iterator([*book_text(), *texts(300, seed=7)], trainer)
    about = json.loads(theirs.to_str())["model"]
    ours = BytePairs(
        {bytes_of(token): n for token, n in about["vocab"].items()},
        [(bytes_of(a), bytes_of(b)) for a, b in about["merges"]],
        digits_alone=request.param,
    )
    return ours, theirs


@pytest.fixture(scope="module")
def published():
    """Ours and theirs, of SmolLM2's file."""
    about = smollm2_file().metadata
    tokens = about["tokenizer.ggml.tokens"]
    merges = [tuple(m.split(" ")) for m in about["tokenizer.ggml.merges"]]
    model = models.BPE(
        vocab={token: n for n, token in enumerate(tokens)},
        merges=merges,
        unk_token=tokens[about["tokenizer.ggml.unknown_token_id"]],
    )
    return gguf.tokenizer(smollm2_file()), theirs_with(model, True)


def same(ours, theirs, written):
    expected = [e.ids for e in theirs.encode_batch(written)]
    for text, ids in zip(written, expected):
        assert ours.encode(text) == ids, repr(text)
        their_text = theirs.decode(ids, skip_special_tokens=False)
        assert ours.decode(ids) == their_text, repr(text)
    return expected


def test_encodes_and_decodes_as_the_library_does(trained):
    ours, theirs = trained
    written = texts(2000)
    expected = same(ours, theirs, written)
    # All bytes have a token here, so nothing is lost.
    assert [ours.decode(ids) for ids in expected] == written
    # And pairs were joined: there are far fewer tokens than bytes.
    n_bytes = sum(len(text.encode()) for text in written)
    assert sum(map(len, expected)) < 0.8 * n_bytes


@settings(deadline=None, max_examples=200)
@given(st.text(st.characters(max_codepoint=0x17F), max_size=40))
def test_any_text_comes_back(trained, text):
    ours, theirs = trained
    assert ours.encode(text) == theirs.encode(text).ids
    assert ours.decode(ours.encode(text)) == text


@pytest.mark.slow
@needs_smollm2
def test_ten_thousand_texts_are_the_librarys_with_smollm2s_merges(published):
    ours, theirs = published
    # And 2,000 of its own tokens in any order, words with and without space.
    rng = random.Random(1)
    numbers = sorted(ours.numbers.values())
    own = [ours.decode(rng.sample(numbers, 12)) for _ in range(2000)]
    written = texts(10_000) + own
    expected = same(ours, theirs, written)
    assert len({n for ids in expected for n in ids}) > 10_000
    back = [ours.decode(ids) == text for ids, text in zip(expected, written)]
    # Some control characters have no token there, and are lost.
    assert sum(back) > 11_000
    for same_text, ids in zip(back, expected):
        assert same_text or ours.unknown in ids


@needs_smollm2
def test_smollm2s_table_lacks_some_bytes_and_says_so(published):
    ours, _ = published
    lacks = {n for n in range(256) if bytes([n]) not in ours.numbers}
    never_in_utf_8 = {0xC0, 0xC1, *range(0xF5, 0x100)}
    assert lacks - never_in_utf_8 == {4, 6, 19, 20, 22, 29, 0xF1, 0xF2}
    assert len(ours) == 49_152
    assert ours.encode("a\x04") == [*ours.encode("a"), 0]
    strict = BytePairs(ours.numbers, ours.rank, digits_alone=True)
    with pytest.raises(ValueError, match=r"has the byte b'\\x06', for which"):
        strict.encode("a\x06")


def small(**options):
    numbers = {bytes([n]): n for n in range(256)} | {b"he": 256, b" t": 257}
    merges = [(b"h", b"e"), (b" ", b"t")]
    options = {"special": {"<|end|>": 258, "<|a.b|>": 259}} | options
    return BytePairs(numbers, merges, **options)


def test_control_tokens_are_read_only_where_it_is_said():
    made = small()
    text = "he<|end|><|a.b|><|aXb|>"
    plain = made.encode(text)
    assert 258 not in plain and 259 not in plain
    ids = made.encode(text, special=True)
    assert ids[:3] == [256, 258, 259] and 259 not in ids[3:]
    assert made.decode(ids) == made.decode(plain) == text
    none = small(special={})
    assert none.encode(text, special=True) == plain


def test_a_character_whose_tokens_are_cut_apart_is_shown_as_such():
    made = small()
    ids = made.encode("é")
    assert made.decode(ids[:1]) == "�" and made.decode(ids) == "é"
    assert made.decode_bytes(ids[:1]) == "é".encode()[:1]


def test_letters_stand_for_all_bytes():
    letters = byte_letters()
    assert sorted(letters) == sorted(ByteLevel.alphabet())
    assert bytes_of("".join(letters)) == bytes(range(256))


@pytest.mark.parametrize(
    "numbers, merges, special, message",
    [
        ({b"a": 0}, [(b"a", b"b")], {}, "needs the token b'b'"),
        ({b"a": 0, b"b": 1}, [(b"a", b"b")], {}, "needs the token b'ab'"),
        ({b"a": 0, b"aa": 1}, [(b"a", b"a")] * 2, {}, "is there twice"),
        ({b"a": 0}, [], {"<s>": 0}, "the same number"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    numbers, merges, special, message
):
    with pytest.raises(ValueError, match=message):
        BytePairs(numbers, merges, special=special)


def test_what_cannot_be_encoded_or_decoded_is_refused():
    made = small()
    with pytest.raises(ValueError, match="surrogates"):
        made.encode("\ud800")
    with pytest.raises(ValueError, match="a token's number .* 260; got 260"):
        made.decode([260])
    with pytest.raises(ValueError, match="stands for no byte"):
        bytes_of("a b")
