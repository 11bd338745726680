"""Chapter 12, real text: tasks and known mistakes."""

import codecs
import json
import math

from tokenizers import Tokenizer, models, trainers

from attnbook.teach.catalogue import symptoms
from attnbook.teach.catalogue.chapter import tasks_of

task = tasks_of(12)

_BYTES = [chr(byte) for byte in range(256)]  # in order: their ids are 0–255
_TEXT = b"The boat left the river bank at dawn. The boat came back."
_LONG = b" ".join([_TEXT, _TEXT[::-1], 2 * _TEXT[::2], 2 * _TEXT[1::2], _TEXT])
_MIXED = 25 * "naïve café 🛶 \n".encode()
_EVERY = bytes(range(256))  # 255 pairs, and each of them once
_CUT = "é🛶".encode() + b"\xf0\x9f\x00\xff"  # and a boat without its end
# A byte order mark, an accent of its own, and a � that stands in the text.
_RARE = [part.encode() for part in ("\ufeff", "e\u0301", "\ufffd", "!")]


@task(
    against="the library tokenizers",
    cases={
        "equally frequent pairs": (b"hug pug", 3),
        "a run of one byte": (b"aaaaaaa aaa bcbcbcbcbc", 9),
        "no byte": (b"", 2),
        "bytes that are no text": (3 * _CUT, 5),
        "two sentences": (_TEXT, 20),
        "a hundred merges": (_EVERY, 100),
        # The pair bc is the second merge, though it has lost an occurrence.
        "a count that falls": (b"abc1ab2ab3ab4ab5ab6bc7bc8bc9bcxdeydez", 3),
        "290 bytes, 140 merges": (_LONG, 140),
    },
)
def learn_merges(data, n_merges):
    """the merges of a byte-pair tokenizer in order, as pairs of ids: each time
    the most frequent pair, of equals the one with the smallest ids"""
    how = {"vocab_size": 256 + n_merges, "initial_alphabet": _BYTES}
    found = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(**how, show_progress=False)
    found.train_from_iterator([data.decode("latin-1")], trainer)
    merges = json.loads(found.to_str())["model"]["merges"]
    return [tuple(found.token_to_id(t) for t in pair) for pair in merges]


@task(
    against="the library tokenizers",
    cases={
        "first on the right": (b"ababc", [(98, 99), (97, 98)]),
        "three alike": (b"aaa", [(97, 97)]),
        "no byte": (b"", [(97, 98)]),
        "one byte, no merge": (b"\n", []),
        "a merge that the text has not": (b"ababc", [(99, 99), (97, 98)]),
        "bytes that are no text": (_CUT, learn_merges(3 * _CUT, 5)),
        "two sentences": (_TEXT, learn_merges(_TEXT, 20)),
        "a hundred merges": (_EVERY, learn_merges(_EVERY, 100)),
        "one pair, ten times": (10 * b"ab", [(97, 98)]),
        "blanks at both ends": (b" ab \n", [(32, 97)]),
        "290 bytes, 140 merges": (_LONG, learn_merges(_LONG, 140)),
    },
)
def encode_bytes(data, merges):
    """the ids of some bytes: each merge in turn, in the order of training"""
    parts = list(_BYTES)
    for a, b in merges:
        parts.append(parts[a] + parts[b])
    ids = {part: n for n, part in enumerate(parts)}
    pairs = [(parts[a], parts[b]) for a, b in merges]
    return Tokenizer(models.BPE(ids, pairs)).encode(data.decode("latin-1")).ids


@encode_bytes.mistake(
    "ztxz16/fastllm #715, joshcarp/llm.go #2", symptom=symptoms.TRAINS_BADLY
)
def merges_from_left_to_right(data, merges):
    """Decoded it is the same text, and yet a trained model is worse on it.
    cause: It merges the first pair in the text, not the first one learned.
    fix: Make the merges in the order in which they were learned.
    hint: Of two pairs that could be merged, which was learned first?"""
    ids = data.decode("latin-1")
    new = {chr(a) + chr(b): chr(n) for n, (a, b) in enumerate(merges, 256)}
    while pairs := [a + b for a, b in zip(ids, ids[1:]) if a + b in new]:
        ids = ids.replace(pairs[0], new[pairs[0]], 1)
    return [ord(n) for n in ids]


@task(
    against="numbers of two bases",
    cases={
        "one bit": (math.log(2), 1, "a"),
        "letters of two bytes": (1.2, 7, "naïve café"),
        "a boat and the end of a line": (0.9, 2, " 🛶\n"),
        "thirteen tokens": (2.5, 13, "a boat near the bank of the river"),
        "150 tokens": (1.7, 150, 31 * "café boat "),
    },
)
def bits_per_byte(loss, n_tokens, text):
    """the bits that a model pays for a byte of a text, from its loss in nats a
    token, the number of tokens that the text has, and the text"""
    return math.log2(math.exp(loss)) * n_tokens / len(text.encode())


@bits_per_byte.mistake(
    "EleutherAI/lm-evaluation-harness #242", symptom=symptoms.OTHER_SCORE
)
def leaves_the_nats(loss, n_tokens, text):
    """The number is too small by a factor of 0.693.
    cause: The loss comes from a natural logarithm, in nats.
    fix: Divide by ln 2, about 0.693.
    hint: How many nats is one bit?"""
    return loss * n_tokens / len(text.encode())


@task(
    against="Python's incremental decoder",
    cases={
        "whole characters": ([b"two ", b"boat", b"s"],),
        "a boat in four parts": ([b"a ", b"\xf0", b"\x9f", b"\x9b", b"\xb6"],),
        "cut twice": ([b"caf\xc3", b"\xa9 \xf0\x9f\x9b", b"\xb6", b"!"],),
        "an end that is cut": ([b"a ", b"boat\xf0\x9f"],),
        "rare characters": (_RARE,),
        "blanks at both ends, and an empty part": ([b" a", b"", b" b \n"],),
        "a long part, then many of three bytes": (
            [_MIXED[:301], *(_MIXED[n : n + 3] for n in range(301, 500, 3))],
        ),
        "parts of 16, 32, 64 and 128 bytes": (
            [
                _MIXED[4:20],
                _MIXED[20:52],
                _MIXED[52:116],
                _MIXED[116:244],
                _MIXED[244:276],
            ],
        ),
    },
)
def text_as_it_comes(parts):
    """what can be shown after each part, one string a part: the characters
    that are whole by now and were not shown yet"""
    decoder = codecs.getincrementaldecoder("utf-8")()
    return [decoder.decode(part) for part in parts]


@text_as_it_comes.mistake("exo-explore/exo #1691", symptom=symptoms.BAD_TEXT)
def decodes_token_by_token(parts):
    """Plain letters are right; é comes out as two signs �, 🛶 as four.
    cause: Each token is decoded alone, and one may end within a character.
    fix: Join the bytes first, or keep an incomplete end for the next token.
    hint: What stands in a token that ends after the first byte of é?"""
    return [part.decode(errors="replace") for part in parts]
