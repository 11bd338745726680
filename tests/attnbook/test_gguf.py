"""GGUF files: held against the format's own package, and refused if damaged.

The small files are written by that package. Where the published model is
installed, it is read by both.
"""

import gc
import random
import struct
import tracemalloc

import gguf as theirs
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf_files import (
    KINDS,
    SIZES,
    interleaved,
    their_name,
    tokens_and_merges,
    write,
)
from models import random_tokens
from real_models import SMOLLM2, needs_smollm2, smollm2_file
from transformers import LlamaConfig, LlamaForCausalLM

from attnbook import gguf, published
from attnbook.generate import complete
from attnbook.pretrained import load, load_tokenizer
from attnbook.teach.check.proof import agrees


def their_tensors(path):
    """All tensors of a file by the package's own reader, in float32."""
    return {
        t.name: theirs.dequantize(t.data, t.tensor_type)
        for t in theirs.GGUFReader(path).tensors
    }


def their_metadata(path):
    return metadata_of(theirs.GGUFReader(path))


def metadata_of(reader):
    return {
        key: field.contents()
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.")
    }


def same_tensors(found, expected):
    assert found.keys() == expected.keys()
    for name, numbers in expected.items():
        assert found[name].dtype == torch.float32
        ours = found[name].numpy()
        assert ours.shape == numbers.shape, name
        assert np.array_equal(ours, numbers), name


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_and_metadata_are_the_packages(tmp_path, kind):
    write(tmp_path / "a.gguf", kind=kind)
    found = gguf.read(tmp_path / "a.gguf")
    same_tensors(found.tensors, their_tensors(tmp_path / "a.gguf"))
    assert found.metadata == their_metadata(tmp_path / "a.gguf")


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_do_not_change_with_the_file(tmp_path, kind):
    path = tmp_path / "a.gguf"
    write(path, kind=kind)
    found = gguf.read(path).tensors
    before = {name: tensor.clone() for name, tensor in found.items()}
    path.write_bytes(bytes(path.stat().st_size))
    same_tensors(found, {n: t.numpy() for n, t in before.items()})


def add_all_kinds(out):
    out.add_uint8("a.u8", 200)
    out.add_int8("a.i8", -3)
    out.add_uint16("a.u16", 60_000)
    out.add_int16("a.i16", -300)
    out.add_int32("a.i32", -70_000)
    out.add_uint64("a.u64", 2**63)
    out.add_int64("a.i64", -(2**40))
    out.add_float64("a.f64", 0.1)
    out.add_bool("a.bool", True)
    out.add_string("a.text", "Fluß 🛶")
    out.add_array("a.texts", ["", "a", "é"])
    out.add_array("a.numbers", [1, -2, 3])
    out.add_array("a.flags", [True, False])


def test_metadata_of_every_kind_is_the_packages(tmp_path):
    write(tmp_path / "a.gguf", change=add_all_kinds)
    found = gguf.read(tmp_path / "a.gguf").metadata
    assert found == their_metadata(tmp_path / "a.gguf")
    assert found["a.text"] == "Fluß 🛶" and found["a.i64"] == -(2**40)


@pytest.mark.filterwarnings("error")
def test_damaged_scales_are_read_in_silence(tmp_path):
    """An infinite scale times 0 is NaN. `pretrained` refuses it by the name
    of its tensor; a warning before that would name neither."""
    blocks = np.zeros((1, 34), np.uint8)  # 32 weights of 0, in Q8_0
    blocks[0, :2] = np.frombuffer(np.float16(np.inf).tobytes(), np.uint8)

    def change(out):
        out.add_tensor("x", blocks, raw_dtype=Kind.Q8_0)

    write(tmp_path / "a.gguf", change=change)
    found = gguf.read(tmp_path / "a.gguf").tensors["x"]
    assert found.shape == (1, 32) and found.isnan().all()


def test_another_alignment_is_kept(tmp_path):
    def change(out):
        out.data_alignment = 64
        out.add_custom_alignment(64)

    write(tmp_path / "a.gguf", change=change)
    found = gguf.read(tmp_path / "a.gguf")
    same_tensors(found.tensors, their_tensors(tmp_path / "a.gguf"))


def llama(numbers, tied=True):
    """Transformers' Llama of the small sizes, with these numbers."""
    s = SIZES
    config = LlamaConfig(
        vocab_size=len(numbers["model.embed_tokens.weight"]),
        hidden_size=s["width"],
        intermediate_size=s["d_ff"],
        num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"],
        num_key_value_heads=s["kv_heads"],
        max_position_embeddings=s["context"],
        rms_norm_eps=1e-5,
        rope_theta=1000.0,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM(config).eval()
    state = {name: torch.tensor(n) for name, n in numbers.items()}
    if tied:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    model.load_state_dict(state)
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_a_checkpoint_has_transformers_names_order_and_sizes(tmp_path, tied):
    numbers = write(tmp_path / "a.gguf", tied=tied)
    file = gguf.read(tmp_path / "a.gguf")
    config, tensors = gguf.as_checkpoint(file)
    same_tensors(tensors, numbers)
    their_config = llama(numbers, tied).config.to_dict()
    their_config["rope_theta"] = 1000.0  # they have it in a table
    assert config == {key: their_config[key] for key in config}


def test_settings_that_are_missing_are_llamas(tmp_path):
    write(tmp_path / "a.gguf", change=changed("llama.rope.freq_base", None))
    config, tensors = gguf.as_checkpoint(gguf.read(tmp_path / "a.gguf"))
    assert config["rope_theta"] == 10_000.0
    assert config["vocab_size"] == len(tensors["model.embed_tokens.weight"])


def test_a_vocabulary_that_is_said_is_not_counted(tmp_path):
    """If it does not fit the embedding, `pretrained` says so."""
    write(tmp_path / "a.gguf", change=changed("llama.vocab_size", 9))
    config, _ = gguf.as_checkpoint(gguf.read(tmp_path / "a.gguf"))
    assert config["vocab_size"] == 9


def test_a_setting_that_is_no_number_is_refused_by_name(tmp_path):
    path = tmp_path / "a.gguf"
    write(path, change=changed("llama.rope.freq_base", "fast"))
    config, _ = gguf.as_checkpoint(gguf.read(path))
    assert config["rope_theta"] == "fast"
    with pytest.raises(ValueError, match=f"{path}: rotary_base .*'fast'"):
        load(path)


def test_widths_of_a_head_that_fit_are_taken(tmp_path):
    write(
        tmp_path / "a.gguf", change=changed("llama.attention.key_length", 16)
    )
    config, _ = gguf.as_checkpoint(gguf.read(tmp_path / "a.gguf"))
    assert "key_length" not in str(config)


def test_rows_that_are_no_heads_of_pairs_stay_as_they_are():
    """`pretrained.rename` says then what is wrong with their number."""
    weight = torch.arange(12).reshape(6, 2)
    assert gguf.in_halves(weight, 2) is weight


def test_rows_in_halves_undo_the_converters_order():
    weight = np.arange(3 * 8 * 2).reshape(24, 2)
    moved = torch.tensor(interleaved(weight, 3))
    assert not np.array_equal(moved, weight)
    assert np.array_equal(gguf.in_halves(moved, 3), weight)


def test_the_tokenizer_in_the_file(tmp_path):
    write(tmp_path / "a.gguf")
    found = gguf.tokenizer(gguf.read(tmp_path / "a.gguf"))
    tokens, _ = tokens_and_merges()
    ids = found.encode("the the<|im_end|>", special=True)
    assert [tokens[n] for n in ids] == ["t", "he", "Ġthe", "<|im_end|>"]
    assert found.decode(ids) == "the the<|im_end|>"
    assert 0 not in found.encode("the the<|im_end|>")


def test_a_tokenizer_is_made_without_unpacking_a_tensor(tmp_path, monkeypatch):
    path = tmp_path / "a.gguf"
    write(path)
    whole = gguf.read(path)
    assert gguf.read_metadata(path) == whole.metadata

    def unpacked(*_):
        raise AssertionError("a tensor was unpacked")

    monkeypatch.setattr(gguf, "_numbers", unpacked)
    text = load_tokenizer(path).decode([5, 6])
    assert text == gguf.tokenizer(whole).decode([5, 6])


def change_tokenizer(changes):
    """Several of the tokenizer's settings changed before they are written."""

    def change(out):
        for key, value in changes.items():
            changed(f"tokenizer.ggml.{key}", value)(out)

    return change


@pytest.mark.parametrize(
    "cut, parts", [("gpt-2", ["12"]), ("smollm", ["1", "2"])]
)
def test_digits_are_cut_apart_as_the_file_says(tmp_path, cut, parts):
    tokens, merges = tokens_and_merges()
    tokens = [*tokens, "12"]
    changes = {
        "pre": cut,
        "tokens": tokens,
        "token_type": None,
        "merges": [*merges, "1 2"],
    }
    write(tmp_path / "a.gguf", change=change_tokenizer(changes))
    found = gguf.tokenizer(gguf.read(tmp_path / "a.gguf"))
    assert [tokens[n] for n in found.encode("12")] == parts


def test_tokens_are_normal_where_no_types_are_said(tmp_path):
    change = change_tokenizer({"token_type": None})
    write(tmp_path / "a.gguf", change=change)
    found = gguf.tokenizer(gguf.read(tmp_path / "a.gguf"))
    assert found.special == {}
    assert len(found.encode("<|im_end|>", special=True)) == 10


@pytest.mark.parametrize("unknown", [None, 2])
def test_a_byte_without_a_token_has_the_number_that_the_file_says(
    tmp_path, unknown
):
    tokens = [t if t != "z" else "h" + t for t in tokens_and_merges()[0]]
    changes = {"tokens": tokens}
    if unknown is not None:
        changes["unknown_token_id"] = unknown
    write(tmp_path / "a.gguf", change=change_tokenizer(changes))
    found = gguf.tokenizer(gguf.read(tmp_path / "a.gguf"))
    if unknown is None:
        with pytest.raises(ValueError, match="no token"):
            found.encode("z")
    else:
        assert found.encode("z") == [unknown]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_a_loaded_file_is_transformers_llama(tmp_path, kind):
    """Packed numbers are unpacked before either model computes with them."""
    path = tmp_path / "a.gguf"
    numbers = write(path, kind=kind, tied=False)
    unpacked = their_tensors(path)
    for name in numbers:
        if "q_proj" not in name and "k_proj" not in name:
            numbers[name] = unpacked[their_name(name)]
    for n in range(SIZES["layers"]):
        # Packing rows and moving them are the same in either order.
        for part, heads in (("q", "heads"), ("k", "kv_heads")):
            name = f"model.layers.{n}.self_attn.{part}_proj.weight"
            moved = torch.tensor(unpacked[their_name(name)])
            numbers[name] = gguf.in_halves(moved, SIZES[heads]).numpy()
    ours = load(path)
    tokens = random_tokens(200, 2, 20)
    expected = llama(numbers, tied=False)(tokens).logits
    assert expected.std() > 0.1
    agrees(ours(tokens), expected, name="transformers", within=1e-4)
    text = load_tokenizer(path).decode([5, 6])
    assert text == gguf.tokenizer(gguf.read(path)).decode([5, 6])


def nan(out):
    tensors = out.tensors[0]
    tensors["output_norm.weight"].tensor[3] = np.nan


def without(name):
    def change(out):
        del out.tensors[0][name]

    return change


@pytest.mark.parametrize(
    "change, message",
    [
        (nan, "is damaged; expected numbers for norm.weight; got NaN"),
        (without("blk.1.attn_k.weight"), "lacks 1 of .*self_attn.k_proj"),
        (without("token_embd.weight"), "vocab_size"),
        (
            lambda o: o.add_tensor("rope_freqs.weight", np.ones(8, "f4")),
            "holds more than this model; .* got rope_freqs.weight too",
        ),
        (
            lambda o: o.add_tensor("blk.weight", np.ones(8, "f4")),
            "got blk.weight too",
        ),
        (
            lambda o: o.add_tensor("blk.0.attn.q.weight", np.ones(8, "f4")),
            r"got \S*layers.0.attn.q.weight too",
        ),
        (
            lambda o: o.add_tensor("v.0.attn_q.weight", np.ones(8, "f4")),
            "got v.0.attn_q.weight too",
        ),
    ],
)
def test_a_file_that_is_no_whole_model_is_refused(tmp_path, change, message):
    path = tmp_path / "a.gguf"
    write(path, change=change)
    with pytest.raises(ValueError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


def test_a_file_of_another_model_says_where(tmp_path):
    path = tmp_path / "a.gguf"
    write(path, change=changed("llama.expert_count", 8))
    with pytest.raises(ValueError, match=f"{path}: .*expert_count"):
        load(path)
    write(path, change=changed("tokenizer.ggml.pre", "qwen2"))
    with pytest.raises(ValueError, match=f"{path}: .*'qwen2'"):
        load_tokenizer(path)


def changed(key, value):
    """A metadata value set to something else before it is written."""

    def change(out):
        if key in out.kv_data[0]:
            del out.kv_data[0][key]
        if value is not None:
            kinds = {
                str: out.add_string,
                int: out.add_uint32,
                float: out.add_float32,
                list: out.add_array,
            }
            kinds[type(value)](key, value)

    return change


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("general.architecture", "bert", "architecture 'bert'; this book r"),
        ("llama.expert_count", 8, "sets 'llama.expert_count' to 8"),
        ("llama.rope.scaling.type", "linear", "does not have"),
        ("llama.block_count", None, "file does not say llama.block_co"),
        ("llama.attention.head_count", None, "say llama.attention.head_co"),
        ("llama.attention.head_count", "4", "a number from 1 on; it is '4'"),
        ("llama.attention.head_count", 0, "a number from 1 on; it is 0"),
        ("llama.rope.dimension_count", 8, "the width of a head, 16"),
        ("llama.attention.value_length", 8, "value_length is 8; .* head, 16"),
    ],
)
def test_what_a_llama_of_ours_is_not_is_refused(tmp_path, key, value, message):
    write(tmp_path / "a.gguf", change=changed(key, value))
    file = gguf.read(tmp_path / "a.gguf")
    with pytest.raises(ValueError, match=message):
        gguf.as_checkpoint(file)


#: The tokens of `tokens_and_merges`, where both control tokens are one text.
ONE_TWICE = ["<|im_end|>", "<|im_end|>", *tokens_and_merges()[0][2:]]


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("tokenizer.ggml.model", "llama", "of kind 'llama'"),
        ("tokenizer.ggml.pre", "qwen2", "as 'qwen2' does"),
        ("tokenizer.ggml.pre", None, "as None does"),
        ("tokenizer.ggml.merges", ["he"], "a space between them; got 'he'"),
        ("tokenizer.ggml.merges", ["h e", "h e"], "is there twice"),
        ("tokenizer.ggml.merges", ["h h"], "needs the token b'hh'"),
        ("tokenizer.ggml.merges", ["一 e"], "stands for no byte"),
        ("tokenizer.ggml.merges", [1, 2], "merges has to be a list of texts"),
        ("tokenizer.ggml.tokens", ["a"], "say the type of all 1 tokens"),
        ("tokenizer.ggml.token_type", [1, 6], "say the type of all"),
        ("tokenizer.ggml.token_type", [6] * 261, "token_type has 6"),
        ("tokenizer.ggml.tokens", ONE_TWICE, "has a control token twice"),
    ],
)
def test_what_is_no_tokenizer_of_ours_is_refused(
    tmp_path, key, value, message
):
    write(tmp_path / "a.gguf", change=changed(key, value))
    file = gguf.read(tmp_path / "a.gguf")
    with pytest.raises(ValueError, match=message):
        gguf.tokenizer(file)


def header(n_tensors=1, n_keys=0, rest=b""):
    return b"GGUF" + struct.pack("<IQQ", 3, n_tensors, n_keys) + rest


def info(axes=(32,), kind=0, offset=0, name=b"a"):
    n = len(axes)
    return (
        struct.pack("<Q", len(name))
        + name
        + struct.pack(f"<I{n}QIQ", n, *axes, kind, offset)
    )


def with_numbers(text, n_bytes):
    return text + bytes(-len(text) % 32 + n_bytes)


KEY = struct.pack("<Q", 1) + b"k"
BAD_FILES = {
    "empty": (b"", "is empty"),
    "something else": (b"PK\3\4" + bytes(99), "begins with b'PK"),
    "version 1": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
    "other byte order": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "version 50"),
    "no numbers in the head": (
        b"GGUF" + struct.pack("<I", 3),
        "of 8 bytes was to begin at byte 8, but the file ends after 8 bytes",
    ),
    "too many tensors": (
        header(2**60),
        "tensors in the 8 bytes that are left, where each takes at least 32",
    ),
    "too many keys": (header(0, 2**60), "announces 1152921504606846976 keys"),
    "a long text": (
        header(0, 1, KEY + struct.pack("<IQ", 8, 2**40)),
        "announces 1099511627776 bytes",
    ),
    "a long list": (
        header(0, 1, KEY + struct.pack("<IIQ", 9, 4, 2**40)),
        "announces 1099511627776 numbers",
    ),
    "a list of lists": (
        header(0, 1, KEY + struct.pack("<IIQ", 9, 9, 1)),
        "a list of type 9",
    ),
    "a type there is not": (
        header(0, 1, KEY + struct.pack("<IQ", 77, 0)),
        "type 77, which there is not",
    ),
    "no UTF-8": (
        header(0, 1, struct.pack("<Q", 1) + b"\xff" + bytes(12)),
        "utf-8",
    ),
    "a key twice": (
        header(0, 2, (KEY + struct.pack("<II", 4, 1)) * 2),
        "key 'k' twice",
    ),
    "alignment 3": (
        header(
            0,
            1,
            struct.pack("<Q", 17)
            + b"general.alignment"
            + struct.pack("<II", 4, 3),
        ),
        "a multiple of 8; it is 3",
    ),
    "no axes": (header(1, 0, info(()) + bytes(8)), "has 0 axes"),
    "five axes": (header(1, 0, info((1,) * 5)), "has 5 axes"),
    "an axis of 0": (with_numbers(header(1, 0, info((0,))), 0), "none of 0"),
    "no whole block": (header(1, 0, info((33,), 3)), "a multiple of 32"),
    "Q4_K": (header(1, 0, info((256,), 12)), "stored as type 12 of ggml"),
    "cut off": (
        with_numbers(header(1, 0, info((32,))), 127),
        "is not whole: it was to end at byte 192, and the file has 191",
    ),
    "sizes whose product is beyond 64 bits": (
        with_numbers(header(1, 0, info((2**40, 2**40))), 32),
        "is not whole",
    ),
    "a place of its own": (
        with_numbers(header(1, 0, info((8,), 0, 32)), 64),
        "begin 32 bytes after",
    ),
    "one in the other": (
        with_numbers(header(2, 0, info((32,)) + info((32,), name=b"b")), 256),
        "the tensors before it end at 128",
    ),
    "a name twice": (
        with_numbers(header(2, 0, info((8,)) + info((8,), 0, 32)), 64),
        "tensor 'a' twice",
    ),
    "more than it says": (
        with_numbers(header(1, 0, info((8,))), 999),
        "its tensors end at byte 96, but the file has 1063",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_refused_in_words(tmp_path, name):
    content, message = BAD_FILES[name]
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        gguf.read(path)
    assert len(str(caught.value)) < 600
    with pytest.raises(ValueError) as without_tensors:
        gguf.read_metadata(path)
    assert str(without_tensors.value) == str(caught.value)
    if content:
        beginning = f"{path} cannot be read as a GGUF file: "
        assert str(caught.value).startswith(beginning)
    else:
        assert str(caught.value).startswith(f"{path} is empty")


def test_no_file_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected a GGUF file"):
        gguf.read(tmp_path / "none.gguf")
    with pytest.raises(FileNotFoundError):
        gguf.read("")
    with pytest.raises(FileNotFoundError, match="expected a GGUF file"):
        gguf.read_metadata(tmp_path / "none.gguf")


LENGTHS = (0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1)


def mutated(content, rng):
    """The same file with bytes changed, cut out, put in, or cut off."""
    found = bytearray(content)
    head = 9000 if rng.random() < 0.9 else len(found)
    for _ in range(rng.randint(1, 5)):
        way = rng.choice(["byte", "length", "gap", "end"])
        at = rng.randrange(min(head, len(found) - 8))
        if way == "byte":
            found[at] = rng.randrange(256)
        elif way == "length":
            found[at : at + 8] = struct.pack("<Q", rng.choice(LENGTHS))
        elif way == "gap":
            del found[at : at + rng.randint(1, 8)]
        elif rng.random() < 0.2:
            del found[rng.randrange(9, len(found)) :]
    return bytes(found)


@pytest.mark.slow
def test_a_thousand_damaged_files_are_refused_or_whole(tmp_path):
    """Each is refused by a ValueError in words, or read whole, and never
    takes much more memory than its size."""
    path = tmp_path / "a.gguf"
    write(path, kind=Kind.Q4_0)
    content = path.read_bytes()
    whole = gguf.read(path)
    rng = random.Random(1)
    refused = 0
    # What earlier files have left in circles counts for none of the later
    # ones; what was there before is not looked through each time.
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    for _ in range(1000):
        path.write_bytes(mutated(content, rng))
        gc.collect()
        try:
            found = gguf.read(path)
            assert len(found.tensors) <= len(whole.tensors)
            gguf.as_checkpoint(found)
            gguf.tokenizer(found)
        except ValueError as error:
            refused += 1
            assert 20 < len(str(error)) < 1000
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # A byte of the weights may be another without anybody noticing.
    assert 500 < refused < 1000
    assert most < 40 * len(content)


@pytest.mark.slow
@needs_smollm2
def test_the_published_file_is_read_as_by_the_package():
    path = published.find(SMOLLM2)
    found = smollm2_file()
    reader = theirs.GGUFReader(path)
    assert found.metadata == metadata_of(reader)
    expected = reader.tensors
    assert found.tensors.keys() == {t.name for t in expected}
    for tensor in expected:
        numbers = theirs.dequantize(tensor.data, tensor.tensor_type)
        ours = found.tensors[tensor.name].numpy()
        assert np.array_equal(ours, numbers), tensor.name


PARAGRAPH = (
    "Attention is a weighted average whose weights are computed. Each word "
    "asks a question, every earlier word offers an answer, and what the word "
    "takes away is a mixture of the answers that fit."
)


@pytest.mark.slow
@needs_smollm2
@torch.no_grad()
def test_the_published_model_is_transformers():
    """Logits, and a greedy text, of two copies with the same numbers."""
    ours = load(SMOLLM2)
    config, tensors = gguf.as_checkpoint(smollm2_file())
    del config["model_type"]
    theirs = LlamaForCausalLM(LlamaConfig(**config)).eval()
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    theirs.load_state_dict(tensors)
    tokenizer = load_tokenizer(SMOLLM2)
    tokens = torch.tensor([tokenizer.encode(PARAGRAPH)])
    expected = theirs(tokens).logits
    # Logits reach 34; in float32 their sums differ in the last bits.
    agrees(ours(tokens), expected, name="transformers", within=2e-4)
    prompt = tokenizer.encode("The capital of France is")
    (new,) = complete(ours, [prompt], 4)
    assert tokenizer.decode(new) == " Paris.\n\n"
    again = theirs.generate(
        torch.tensor([prompt]),
        max_new_tokens=4,
        do_sample=False,
        eos_token_id=None,
        pad_token_id=0,
    )[0, len(prompt) :]
    assert new == again.tolist()
