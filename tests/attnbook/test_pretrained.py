"""Published checkpoints: ours against transformers' models, read from disk.

"Theirs" are random models of transformers, written by `save_pretrained`.
"""

import json
import math
import pickle
import re
import shutil

import huggingface_hub
import pytest
import torch
from attnbook import pretrained, text
from attnbook.cache import GrowingCache
from attnbook.gpt import GPT
from attnbook.masks import padding_mask
from attnbook.pretrained import SIZES, config_of, load, pairs_of, rename
from attnbook.teach.proof import agrees
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

VOCABULARY = 37
GPT2 = {
    "vocab_size": VOCABULARY,
    "n_positions": 24,
    "n_embd": 24,
    "n_head": 4,
    "n_layer": 2,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
LLAMA = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 41,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
#: What is different from the above.
CONFIGS = {
    "gpt2": {},
    "gpt2, one head, one block": {"n_head": 1, "n_layer": 1},
    "gpt2, other sizes": {"n_head": 7, "n_embd": 35, "n_inner": 51},
    "gpt2, eps": {"layer_norm_epsilon": 0.1},
    "gpt2, untied": {"tie_word_embeddings": False},
    "gpt2, relu": {"activation_function": "relu"},
    "gpt2, gelu": {"activation_function": "gelu"},
    "gpt2, silu": {"activation_function": "silu"},
    "gpt2, tanh": {"activation_function": "gelu_pytorch_tanh"},
    "llama": {},
    "llama, one head": {"num_attention_heads": 1, "num_key_value_heads": 1},
    "llama, all share": {"num_key_value_heads": 1, "hidden_size": 40},
    "llama, none share": {"num_key_value_heads": 4, "num_hidden_layers": 3},
    "llama, default": {"num_key_value_heads": None},
    "llama, six heads": {"num_attention_heads": 6, "num_key_value_heads": 3},
    "llama, tied": {"tie_word_embeddings": True},
    "llama, eps": {"rms_norm_eps": 0.1},
    "llama, base": {
        "rope_parameters": {"rope_theta": 50.0, "rope_type": "default"}
    },
    "llama, biases": {"attention_bias": True, "mlp_bias": True},
}


def theirs_of(name, *, std=0.3, **more):
    """A random model of transformers, by the name of its configuration."""
    family = name.partition(",")[0]
    torch.manual_seed(len(name))
    if family == "gpt2":
        theirs = GPT2LMHeadModel(GPT2Config(**GPT2 | CONFIGS[name] | more))
    else:
        theirs = LlamaForCausalLM(LlamaConfig(**LLAMA | CONFIGS[name] | more))
    for name, parameter in theirs.named_parameters():
        # So that nothing is 0 or 1; about 1 is what a norm multiplies by.
        scale = parameter.ndim == 1 and name.endswith("weight")
        nn.init.normal_(parameter, mean=float(scale), std=std)
    theirs.generation_config.eos_token_id = None  # never stop
    return theirs.eval()


@pytest.fixture(scope="module", params=CONFIGS)
def both(request, tmp_path_factory):
    """Ours, read from disk, and theirs."""
    folder = tmp_path_factory.mktemp("model")
    theirs = theirs_of(request.param)
    theirs.save_pretrained(folder)
    return load(folder), theirs


def exact(theirs):
    """A Llama that takes norms and angles in float64 too.

    Transformers takes them in float32 whatever the type of the model, so
    that no two of its results agree any better.
    """

    class Norm(type(theirs.model.norm)):
        def forward(self, x):
            square = x.square().mean(-1, keepdim=True)
            return self.weight * x * (square + self.variance_epsilon) ** -0.5

    class Rotary(type(theirs.model.rotary_emb)):
        def forward(self, x, position_ids):
            width = self.config.head_dim
            base = self.config.rope_parameters["rope_theta"]
            pair = torch.arange(0, width, 2, dtype=torch.float64) / width
            angles = position_ids[..., None] * base**-pair
            angles = torch.cat([angles, angles], -1)
            return angles.cos(), angles.sin()

    for module in theirs.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.__class__ = Norm
        elif type(module).__name__ == "LlamaRotaryEmbedding":
            module.__class__ = Rotary
    return theirs


@pytest.fixture(scope="module")
def double(both, tmp_path_factory):
    """The same two in float64, read from a file that holds float64."""
    import copy

    folder = tmp_path_factory.mktemp("double")
    theirs = copy.deepcopy(both[1]).double()
    theirs.save_pretrained(folder)
    ours = load(folder)
    assert ours.token_embedding.weight.dtype == torch.float64
    return ours, theirs if hasattr(theirs, "transformer") else exact(theirs)


@pytest.fixture(params=["float32", "float64"])
def pair(request, both, double):
    """Ours, theirs, and how far they may be apart."""
    if request.param == "float32":
        return *both, 1e-4
    return *double, 1e-10


def tokens_of(*size, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, size, generator=generator)


def their_logits(theirs, tokens, real=None):
    if real is None:
        return theirs(tokens).logits
    positions = (real.long().cumsum(-1) - 1).clamp(min=0)
    return theirs(
        tokens, attention_mask=real.long(), position_ids=positions
    ).logits


def test_logits_agree(pair):
    ours, theirs, bound = pair
    for size in ((1, 1), (2, 7), (3, 24)):
        tokens = tokens_of(*size)
        with torch.no_grad():
            expected = theirs(tokens).logits
            assert expected.std() > 0.1  # so that the bound means something
            agrees(ours(tokens), expected, name="theirs", within=bound)


@pytest.mark.parametrize("side", ["left", "right"])
def test_logits_agree_with_padding(pair, side):
    ours, theirs, bound = pair
    tokens, real = tokens_of(3, 9), padding_mask([9, 4, 1], side=side)
    with torch.no_grad():
        expected = their_logits(theirs, tokens, real)
        agrees(
            ours(tokens, real=real)[real],
            expected[real],
            name="theirs",
            within=bound,
        )


@pytest.mark.parametrize("chunks", [[5] + [1] * 6, [3, 4, 5], [1, 11]])
def test_logits_agree_with_the_cache(pair, chunks):
    ours, theirs, bound = pair
    tokens = tokens_of(2, sum(chunks))
    with torch.inference_mode():
        expected = theirs(tokens).logits
        layers = ours.config.n_layers
        for cache in (ours.new_cache(2), GrowingCache(layers)):
            parts = [ours(t, cache=cache) for t in tokens.split(chunks, 1)]
            agrees(
                torch.cat(parts, 1),
                expected,
                name="theirs, whole",
                within=bound,
            )


def test_logits_agree_with_cache_and_padding(pair):
    ours, theirs, bound = pair
    tokens, real = tokens_of(3, 9), padding_mask([6, 3, 1], side="left")
    real = torch.cat([real, torch.ones(3, 3, dtype=torch.bool)], 1)
    with torch.inference_mode():
        expected = their_logits(theirs, tokens, real)
        cache = ours.new_cache(3)
        parts = [
            ours(tokens[:, :6], real=real[:, :6], cache=cache),
            *(ours(tokens[:, n : n + 1], cache=cache) for n in range(6, 9)),
        ]
        agrees(
            torch.cat(parts, 1)[real],
            expected[real],
            name="theirs",
            within=bound,
        )


def greedy(model, tokens, real, steps):
    cache, found = model.new_cache(len(tokens)), []
    with torch.inference_mode():
        for _ in range(steps):
            logits = model(tokens, real=real, cache=cache, last=True)
            tokens, real = logits.argmax(-1), None
            found.append(tokens)
    return torch.cat(found, 1)


def test_greedy_tokens_are_those_of_generate(both):
    ours, theirs = both
    tokens, real = tokens_of(3, 8), padding_mask([8, 5, 1], side="left")
    expected = theirs.generate(
        tokens,
        attention_mask=real.long(),
        do_sample=False,
        max_new_tokens=12,
        pad_token_id=0,
    )[:, 8:]
    assert expected.shape == (3, 12) and expected.unique().numel() > 3
    assert torch.equal(greedy(ours, tokens, real, 12), expected)


def test_gradients_reach_every_weight(both):
    ours, _ = both
    assert not ours.training
    tokens = tokens_of(2, 9)
    ours.loss(tokens[:, :-1], tokens[:, 1:]).backward()
    for name, parameter in ours.named_parameters():
        assert parameter.grad.abs().sum() > 0, name
        assert parameter.is_contiguous(), name
    ours.zero_grad(set_to_none=True)


def test_an_option_for_half_precision_changes_nothing(tmp_path):
    theirs = theirs_of(
        "gpt2", reorder_and_upcast_attn=True, attn_implementation="eager"
    )
    theirs.save_pretrained(tmp_path)
    check(tmp_path, theirs)


# The four sizes of GPT-2.


@pytest.mark.parametrize(
    "name, layers, width, heads, count",
    [
        ("gpt2", 12, 768, 12, 124_439_808),
        ("gpt2-medium", 24, 1024, 16, 354_823_168),
        ("gpt2-large", 36, 1280, 20, 774_030_080),
        ("gpt2-xl", 48, 1600, 25, 1_557_611_200),
    ],
)
def test_the_sizes_hold_what_theirs_hold(name, layers, width, heads, count):
    ours = SIZES[name]
    config = GPT2Config(n_embd=width, n_layer=layers, n_head=heads)
    assert config_of(config.to_dict()) == ours
    with torch.device("meta"):
        theirs = GPT2LMHeadModel(config)
        expected = GPT(ours).state_dict()
    assert sum(p.numel() for p in theirs.parameters()) == count
    assert ours.parameter_count() == count
    tensors = theirs.transformer.state_dict()
    for prefix in ("", "transformer."):  # as in a body's and a model's file
        found = rename(
            {prefix + n: t for n, t in tensors.items()}, ours, "gpt2"
        )
        assert {n: t.shape for n, t in found.items()} == {
            n: t.shape for n, t in expected.items()
        }


@pytest.mark.parametrize("name", SIZES)
def test_all_depths_agree(name, tmp_path):
    """The depth and the heads of a size, each head four wide."""
    size = SIZES[name]
    theirs = theirs_of(
        "gpt2",
        n_layer=size.n_layers,
        n_head=size.n_heads,
        n_embd=4 * size.n_heads,
        std=0.2,
    )
    theirs.save_pretrained(tmp_path, max_shard_size="1MB")
    ours, tokens = load(tmp_path), tokens_of(2, 9)
    with torch.no_grad():
        agrees(ours(tokens), theirs(tokens).logits, name="theirs", within=1e-4)
        if name == "gpt2":
            return
        agrees(
            ours.double()(tokens),
            theirs.double()(tokens).logits,
            name="theirs",
            within=1e-10,
        )


def test_gpt2_itself_agrees(tmp_path):
    """Sizes as published, 124 million numbers, these drawn at random."""
    torch.manual_seed(0)
    theirs = GPT2LMHeadModel(GPT2Config()).eval()
    theirs.save_pretrained(tmp_path)
    ours, tokens = load(tmp_path), torch.randint(50_257, (1, 20))
    assert ours.config == SIZES["gpt2"]
    with torch.no_grad():
        agrees(ours(tokens), theirs(tokens).logits, name="theirs", within=1e-4)


# What a file may look like.


def saved(folder, name="gpt2", **options):
    theirs = theirs_of(name)
    theirs.save_pretrained(folder, **options)
    return theirs


def check(folder, theirs, **options):
    ours, tokens = load(folder, **options), tokens_of(2, 9)
    with torch.no_grad():
        agrees(ours(tokens), theirs(tokens).logits, name="theirs", within=1e-4)
    return ours


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_shards(tmp_path, name):
    theirs = saved(tmp_path, name, max_shard_size="10KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    assert not (tmp_path / "model.safetensors").exists()
    check(tmp_path, theirs)


def change_tensors(folder, change):
    """Let `change` have the tensors of a folder's file, and write them."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_names_without_the_prefix(tmp_path, name):
    theirs = saved(tmp_path, name)
    prefix = pretrained.FAMILIES[name].prefix

    def strip(tensors):
        assert any(n.startswith(prefix) for n in tensors)
        for old in list(tensors):
            tensors[old.removeprefix(prefix)] = tensors.pop(old)

    change_tensors(tmp_path, strip)
    check(tmp_path, theirs)


@pytest.mark.parametrize(
    "name, buffers",
    [
        (
            "gpt2",
            ["transformer.h.1.attn.bias", "transformer.h.0.attn.masked_bias"],
        ),
        (
            "llama",
            [
                "model.layers.1.self_attn.rotary_emb.inv_freq",
                "model.rotary_emb.inv_freq",
            ],
        ),
    ],
)
def test_buffers_are_no_weights(tmp_path, name, buffers):
    theirs = saved(tmp_path, name)
    change_tensors(
        tmp_path,
        lambda t: t.update(
            {b: torch.ones(3, dtype=torch.uint8) for b in buffers}
        ),
    )
    check(tmp_path, theirs)


@pytest.mark.parametrize("name", ["gpt2", "llama, tied"])
def test_a_tied_head_that_is_in_the_file(tmp_path, name):
    theirs = saved(tmp_path, name)
    embedding = theirs.get_input_embeddings().weight.detach()
    change_tensors(
        tmp_path, lambda t: t.update({"lm_head.weight": embedding.clone()})
    )
    assert check(tmp_path, theirs).head is None
    change_tensors(tmp_path, lambda t: t["lm_head.weight"][3, 4].add_(1))
    with pytest.raises(
        ValueError,
        match=(
            r"model.safetensors has a head of its own; expected lm_head.weight "
            r"equal to .*, as tie_word_embeddings says; got another$"
        ),
    ):
        load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_type_is_the_files(tmp_path, name, dtype):
    theirs = theirs_of(name).to(dtype)
    theirs.save_pretrained(tmp_path)
    ours, tokens = load(tmp_path), tokens_of(2, 9)
    assert {p.dtype for p in ours.parameters()} == {dtype}
    theirs = type(theirs).from_pretrained(tmp_path, dtype=torch.float32)
    with torch.no_grad():
        assert ours(tokens).dtype == dtype
        agrees(
            ours.float()(tokens),
            theirs(tokens).logits,
            name="theirs",
            within=1e-4,
        )


def test_a_model_needs_its_file_no_longer(tmp_path):
    theirs = saved(tmp_path)
    ours, tokens = load(tmp_path), tokens_of(2, 9)
    file = tmp_path / "model.safetensors"
    size = file.stat().st_size
    with open(file, "r+b") as opened:
        opened.write(bytes(size))
    with torch.no_grad():
        agrees(ours(tokens), theirs(tokens).logits, name="theirs", within=1e-4)


def test_loading_draws_no_random_numbers(tmp_path):
    saved(tmp_path)
    before = torch.random.get_rng_state()
    load(tmp_path)
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_path_may_be_a_string_from_home(tmp_path, monkeypatch):
    theirs = saved(tmp_path / "gpt2")
    check(str(tmp_path / "gpt2"), theirs)
    monkeypatch.setenv("HOME", str(tmp_path))
    check("~/gpt2", theirs)


# The way round.


def test_rename_turns_and_splits_by_hand():
    theirs = theirs_of("gpt2").transformer
    config = config_of(theirs.config.to_dict())
    ours = rename(theirs.state_dict(), config, "gpt2")
    conv, d = theirs.h[1].attn.c_attn, config.d_model
    assert conv.weight.shape == (d, 3 * d)  # inputs, outputs
    x = torch.randn(5, d)
    q, k, v = conv(x).split(d, -1)
    name = "blocks.1.attention."
    for part, expected in (("query", q), ("key_value", torch.cat([k, v], -1))):
        found = nn.functional.linear(
            x, ours[f"{name}{part}.weight"], ours[f"{name}{part}.bias"]
        )
        agrees(found, expected, name="Conv1D", within=1e-5)


def test_rename_copies_only_what_it_stacks():
    theirs = theirs_of("llama")
    config = config_of(theirs.config.to_dict())
    tensors = theirs.state_dict()
    ours = rename(tensors, config, "llama")
    starts = {t.untyped_storage().data_ptr() for t in tensors.values()}
    copied = {
        name
        for name, t in ours.items()
        if t.untyped_storage().data_ptr() not in starts
    }
    assert copied == {
        f"blocks.{n}.attention.key_value.weight" for n in range(2)
    }


# What is wrong with tensors: which, and what was expected.


def rename_to(old, new):
    return lambda tensors: tensors.update({new: tensors.pop(old)})


def without(*names):
    def change(tensors):
        for name in names:
            del tensors[name]

    return change


def of(name, tensor):
    return lambda tensors: tensors.update({name: tensor})


T = "transformer."
BROKEN = {
    "renamed": (
        "gpt2",
        rename_to(T + "h.1.ln_1.weight", T + "h.1.norm1.w"),
        "lacks a tensor; expected transformer.h.1.ln_1.weight (24,), for "
        "blocks.1.attention_norm.weight; got transformer.h.1.norm1.w of that "
        "shape, perhaps renamed from it",
    ),
    "the nearest of two": (
        "gpt2",
        lambda t: (
            rename_to(T + "h.1.ln_1.weight", T + "h.1.ln1.weight")(t),
            rename_to(T + "h.0.ln_2.bias", T + "h.0.ln2.bias")(t),
        ),
        "lacks 2 tensors; expected transformer.h.0.ln_2.bias (24,), for "
        "blocks.0.feed_forward_norm.bias; got transformer.h.0.ln2.bias of "
        "that shape, perhaps renamed from it (missing too: "
        "transformer.h.1.ln_1.weight)",
    ),
    "missing": (
        "gpt2",
        without(T + "h.0.attn.c_attn.weight"),
        "lacks a tensor; expected transformer.h.0.attn.c_attn.weight "
        "(24, 72), for blocks.0.attention.query.weight and "
        "blocks.0.attention.key_value.weight; got no other tensor of that "
        "shape",
    ),
    "missing, llama": (
        "llama",
        without("model.layers.1.self_attn.v_proj.weight"),
        "lacks a tensor; expected model.layers.1.self_attn.v_proj.weight "
        "(12, 24), for blocks.1.attention.key_value.weight; got no other "
        "tensor of that shape",
    ),
    "no head": (
        "llama",
        without("lm_head.weight"),
        "lacks a tensor; expected lm_head.weight (37, 24), for head.weight; "
        "got no other tensor of that shape",
    ),
    "nothing": (
        "gpt2",
        lambda t: (t.clear(), t.update(x=torch.zeros(2))),
        "lacks 28 tensors; expected wte.weight (37, 24), for "
        "token_embedding.weight; got no other tensor of that shape (missing "
        "too: wpe.weight, h.0.ln_1.weight, h.0.ln_1.bias and 24 more)",
    ),
    "a block too many": (
        "gpt2",
        of(T + "h.2.ln_1.bias", torch.zeros(24)),
        "holds a tensor too many; expected the 28 of these sizes; got "
        "transformer.h.2.ln_1.bias (24,)",
    ),
    "two names": (
        "gpt2",
        of("wte.weight", torch.zeros(37, 24)),
        "holds a tensor too many; expected the 28 of these sizes; got "
        "wte.weight (37, 24)",
    ),
    "another vocabulary": (
        "gpt2",
        of(T + "wte.weight", torch.zeros(40, 24)),
        "transformer.wte.weight in {} has the wrong shape; expected "
        "(37, 24), for token_embedding.weight; got (40, 24)",
    ),
    "one number less": (
        "llama",
        of("model.norm.weight", torch.zeros(23)),
        "model.norm.weight in {} has the wrong shape; expected (24,), for "
        "norm.weight; got (23,)",
    ),
    "turned": (
        "gpt2",
        of(T + "h.0.mlp.c_fc.weight", torch.zeros(96, 24)),
        "transformer.h.0.mlp.c_fc.weight in {} has the wrong shape; expected "
        "(24, 96), for blocks.0.feed_forward.up.weight; got (96, 24), as in "
        "a Linear and not in a Conv1D",
    ),
    "turned, llama": (
        "llama",
        of("model.layers.0.mlp.up_proj.weight", torch.zeros(24, 41)),
        "model.layers.0.mlp.up_proj.weight in {} has the wrong shape; "
        "expected (41, 24), for blocks.0.feed_forward.up.weight; got "
        "(24, 41)",
    ),
    "two types": (
        "gpt2",
        of(T + "ln_f.bias", torch.zeros(24).half()),
        "holds numbers of the wrong type; expected all of one type, and "
        "floats of 16 bits or more; got ",
    ),
    "integers": (
        "gpt2",
        lambda t: t.update({n: a.to(torch.int8) for n, a in t.items()}),
        "holds numbers of the wrong type; expected all of one type, and "
        "floats of 16 bits or more; got torch.int8 in ",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_wrong_tensors_are_named(tmp_path, monkeypatch, case):
    name, change, message = BROKEN[case]
    saved(tmp_path, name)
    change_tensors(tmp_path, change)
    filled = []  # nothing is, not even in part
    monkeypatch.setattr(
        GPT, "load_state_dict", lambda *args, **_: filled.append(args)
    )
    file = tmp_path / "model.safetensors"
    if "{}" not in message:
        message = f"{file} {message}"
    end = "" if message.endswith(("got ", " in ")) else "$"
    expected = re.escape(message.format(file)) + end
    with pytest.raises(ValueError, match=f"^{expected}"):
        load(tmp_path)
    assert not filled


def test_a_file_cut_off_anywhere(tmp_path):
    saved(tmp_path)
    file = tmp_path / "model.safetensors"
    data = file.read_bytes()
    head = 8 + int.from_bytes(data[:8], "little")
    about = json.loads(data[8:head])
    about.pop("__metadata__", None)
    places = sorted(
        (head + entry["data_offsets"][1], name)
        for name, entry in about.items()
    )
    assert places[-1][0] == len(data)
    for size in (
        0,
        5,
        8,
        20,
        head - 1,
        head,
        *range(head + 1, len(data), 997),
        len(data) - 1,
    ):
        file.write_bytes(data[:size])
        with pytest.raises(ValueError, match="is cut off") as caught:
            load(tmp_path)
        if size >= head:
            first = next(name for end, name in places if end > size)
            assert str(caught.value) == (
                f"{file} is cut off; expected {len(data)} bytes; got {size}: "
                f"{first} {tuple(about[first]['shape'])} is the first tensor "
                "that is not whole"
            )


def test_a_damaged_head(tmp_path):
    saved(tmp_path)
    file = tmp_path / "model.safetensors"
    data = file.read_bytes()
    for damaged in (
        b"\xff" * 8 + data[8:],
        data[:8] + b"[" + data[9:],
        b"\x02" + bytes(7) + b"[]",
        b"\x02" + bytes(7) + b"{}" + bytes(99),
        data + bytes(4),
        b"\x80\x04" + data,
    ):
        file.write_bytes(damaged)
        with pytest.raises(
            ValueError,
            match=(
                "model.safetensors is cut off or damaged; expected a whole "
                "safetensors file; got "
            ),
        ):
            load(tmp_path)


# Several files, and their index.


def indexed(folder):
    theirs = saved(folder, max_shard_size="10KB")
    index = folder / "model.safetensors.index.json"
    return theirs, index, json.loads(index.read_text())


@pytest.mark.parametrize(
    "file",
    [
        "../elsewhere/model.safetensors",
        "/model.safetensors",
        "a/b.safetensors",
        r"..\b.safetensors",
        "..",
        "",
        ".safetensors",
        3,
        None,
        "pytorch_model.bin",
        "model.safetensors\n",
    ],
)
def test_an_index_leads_nowhere_else(tmp_path, file):
    theirs, index, about = indexed(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "elsewhere")
    about["weight_map"]["transformer.ln_f.bias"] = file
    index.write_text(json.dumps(about))
    message = (
        f"{index} leads elsewhere; expected for transformer.ln_f.bias the "
        "name of a .safetensors file in the same folder; got "
        f"{file!r}"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        load(tmp_path / "model")


def test_a_file_that_the_index_names_is_missing(tmp_path):
    _, index, about = indexed(tmp_path)
    shard = about["weight_map"]["transformer.ln_f.bias"]
    (tmp_path / shard).unlink()
    with pytest.raises(
        FileNotFoundError,
        match=re.escape(
            f"there is no file {tmp_path / shard}; expected it, as {index.name} "
            "names it; got none"
        ),
    ):
        load(tmp_path)


def test_a_file_that_is_cut_off_among_several(tmp_path):
    _, _, about = indexed(tmp_path)
    shard = tmp_path / about["weight_map"]["transformer.ln_f.bias"]
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(ValueError, match=re.escape(f"{shard} is cut off")):
        load(tmp_path)


def test_an_index_and_files_that_differ(tmp_path):
    _, index, about = indexed(tmp_path)
    shard = tmp_path / about["weight_map"]["transformer.ln_f.bias"]
    tensors = load_file(shard)
    tensors["other"] = tensors.pop("transformer.ln_f.bias")
    save_file(tensors, shard)
    with pytest.raises(
        ValueError,
        match=re.escape(
            f"{index} lacks a tensor; expected transformer.ln_f.bias (24,), for "
            "norm.bias; got other of that shape, perhaps renamed from it"
        ),
    ):
        load(tmp_path)


def test_an_index_that_lacks_a_tensor(tmp_path):
    """Both the index and the files agree, and the model is not whole."""
    _, index, about = indexed(tmp_path)
    shard = tmp_path / about["weight_map"].pop("transformer.ln_f.bias")
    tensors = load_file(shard)
    del tensors["transformer.ln_f.bias"]
    save_file(tensors, shard)
    index.write_text(json.dumps(about))
    with pytest.raises(
        ValueError,
        match=re.escape(
            f"{index} lacks a tensor; expected transformer.ln_f.bias (24,), for "
            "norm.bias; got no other tensor of that shape"
        ),
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    "contents, message",
    [
        (
            "{}",
            "names no files; expected a weight_map of tensors and files; got "
            "None",
        ),
        (
            '{"weight_map": {}}',
            "names no files; expected a weight_map of tensors "
            "and files; got {}",
        ),
        ("[]", "describes nothing; expected a JSON object; got list"),
        ("{", "is damaged; expected JSON; got "),
    ],
)
def test_an_index_that_is_none(tmp_path, contents, message):
    _, index, _ = indexed(tmp_path)
    index.write_text(contents)
    with pytest.raises(ValueError, match=re.escape(f"{index} {message}")):
        load(tmp_path)


# Pickles.


def pickled(folder, contents=None):
    """A folder with nothing but a pickle, as old ones are."""
    theirs = saved(folder)
    (folder / "model.safetensors").unlink()
    torch.save(
        theirs.state_dict() if contents is None else contents,
        folder / "pytorch_model.bin",
    )
    return theirs


class Program:
    """What runs when it is read."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (open, (str(self.file), "w"))


def test_a_pickle_is_not_read_by_default(tmp_path, monkeypatch):
    theirs = pickled(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", lambda *a, **k: pytest.fail("read"))
        with pytest.raises(
            ValueError,
            match=re.escape(
                f"{tmp_path} holds its weights as a pickle; expected "
                "model.safetensors; got pytorch_model.bin. A pickle can run any "
                "program when it is read. If you trust where it comes from, "
                "allow_pickle=True reads tensors from it and nothing else"
            ),
        ):
            load(tmp_path)
    check(tmp_path, theirs, allow_pickle=True)


def test_a_program_in_a_pickle_does_not_run(tmp_path):
    ran = tmp_path / "ran"
    pickled(tmp_path, {"transformer.wte.weight": Program(ran)})
    with pytest.raises(
        ValueError,
        match=(
            "pytorch_model.bin is cut off, damaged, or has more than tensors in "
            "it; expected a whole PyTorch file of tensors; got UnpicklingError$"
        ),
    ):
        load(tmp_path, allow_pickle=True)
    plain = pickle.dumps(Program(ran), protocol=2)
    (tmp_path / "pytorch_model.bin").write_bytes(plain)
    with pytest.raises(ValueError, match="more than tensors"):
        load(tmp_path, allow_pickle=True)
    assert not ran.exists()
    pickle.loads(plain).close()
    assert ran.exists()  # it would have


def test_safetensors_come_first(tmp_path):
    theirs = saved(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"not one")
    check(tmp_path, theirs, allow_pickle=True)


@pytest.mark.parametrize(
    "contents, message",
    [
        ([1], "holds something else; expected tensors by name; got list"),
        ({"a": 1}, "holds something else; expected tensors by name; got dict"),
    ],
)
def test_a_pickle_of_something_else(tmp_path, contents, message):
    pickled(tmp_path, contents)
    with pytest.raises(ValueError, match=message):
        load(tmp_path, allow_pickle=True)


def test_a_pickle_that_is_cut_off(tmp_path):
    pickled(tmp_path)
    file = tmp_path / "pytorch_model.bin"
    data = file.read_bytes()
    for size in (0, 1, 100, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:size])
        with pytest.raises(
            ValueError, match=re.escape(f"{file} is cut off, damaged")
        ):
            load(tmp_path, allow_pickle=True)


# Folders and names.


def test_a_folder_without_its_files(tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=re.escape(
            f"there is no file {tmp_path / 'config.json'}; expected one that "
            "describes the model; got none"
        ),
    ):
        load(tmp_path)
    (tmp_path / "config.json").write_text(
        json.dumps(GPT2Config(**GPT2).to_dict())
    )
    with pytest.raises(
        FileNotFoundError,
        match=re.escape(
            f"there are no weights in {tmp_path}; expected model.safetensors or "
            "model.safetensors.index.json; got neither"
        ),
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    "contents, message",
    [
        ("{", "is damaged; expected JSON; got "),
        ("\udcff", "is damaged; expected JSON; got "),
        ("[]", "describes nothing; expected a JSON object; got list"),
    ],
)
def test_a_config_that_is_none(tmp_path, contents, message):
    saved(tmp_path)
    file = tmp_path / "config.json"
    file.write_bytes(contents.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=re.escape(f"{file} {message}")):
        load(tmp_path)


def test_a_config_that_is_wrong_is_named_with_its_file(tmp_path):
    saved(tmp_path)
    file = tmp_path / "config.json"
    about = json.loads(file.read_text())
    for change, message in (
        (
            {"n_head": 5},
            "the heads do not divide the width; expected d_model "
            "a multiple of n_heads; got 24 and 5",
        ),
        (
            {"n_head": "4"},
            "n_heads is no whole number; expected an int; got '4'",
        ),
        ({"n_head": None}, "a size is missing; expected n_head; got none"),
    ):
        file.write_text(json.dumps(about | change))
        with pytest.raises(
            ValueError, match=f"^{re.escape(str(file))}: {re.escape(message)}$"
        ):
            load(tmp_path)


def test_a_path_that_leads_nowhere(tmp_path):
    saved(tmp_path / "here")
    file = tmp_path / "here" / "model.safetensors"
    with pytest.raises(
        FileNotFoundError,
        match=re.escape(
            f"there is no folder {file}; expected one with config.json and "
            "model.safetensors, or a name on the hub; got a file"
        ),
    ):
        load(file)
    for path in (tmp_path / "there", "./there", "../there", "a/b/c", "a b"):
        with pytest.raises(
            FileNotFoundError,
            match=re.escape(
                f"there is no folder {path}; expected one with config.json and "
                "model.safetensors, or a name on the hub; got neither"
            ),
        ):
            load(path)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub's copies on this machine, none yet, and no network."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv(text.OFFLINE, "1")
    return folder


def copy_of(hub, name):
    """The folder that the hub's client keeps a copy in."""
    repository = hub / f"models--{name.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    (repository / "snapshots" / commit).mkdir(parents=True)
    return repository / "snapshots" / commit


@pytest.mark.parametrize(
    "name, kept",
    [
        ("someone/a-model.2", "someone/a-model.2"),
        ("gpt2", "gpt2"),
        ("gpt2", "openai-community/gpt2"),
    ],
)
def test_a_copy_on_this_machine_needs_no_network(hub, monkeypatch, name, kept):
    theirs = saved(copy_of(hub, kept))
    check(name, theirs)
    monkeypatch.delenv(text.OFFLINE)  # nor is it asked
    monkeypatch.setattr(text, "_reachable", lambda a: pytest.fail("asked"))
    check(name, theirs)


def nowhere(name, why, full=None):
    return (
        re.escape(
            f"there is no model {name!r}; expected a folder of that name with "
            "config.json and model.safetensors, a copy of the hub's on this "
            f"machine, or the hub to answer; got no folder, no copy, and {why}. "
            f"Where there is a network, `hf download {full or name}` makes a "
            "copy"
        )
        + "$"
    )


def test_no_copy_and_no_network(hub, monkeypatch):
    why = "a hub not asked, as ATTNBOOK_OFFLINE is set"
    with pytest.raises(FileNotFoundError, match=nowhere("a/b", why)):
        load("a/b")
    with pytest.raises(
        FileNotFoundError, match=nowhere("gpt2", why, "openai-community/gpt2")
    ):
        load("gpt2")
    monkeypatch.delenv(text.OFFLINE)
    monkeypatch.setattr(text, "_reachable", lambda address: False)
    with pytest.raises(
        FileNotFoundError, match=nowhere("a/b", "a hub that does not answer")
    ):
        load("a/b")
    monkeypatch.setattr(text, "_reachable", lambda a: pytest.fail("asked"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        FileNotFoundError,
        match=nowhere("a/b", "a hub not asked, as HF_HUB_OFFLINE is set"),
    ):
        load("a/b")


def test_half_a_copy_is_none(hub):
    folder = copy_of(hub, "a/b")
    indexed(folder)
    next(folder.glob("model-00001*")).unlink()
    with pytest.raises(FileNotFoundError, match="no copy"):
        load("a/b")


@pytest.fixture
def online(hub, monkeypatch):
    """A hub that answers: what it is asked for, and what it gives."""
    monkeypatch.delenv(text.OFFLINE)
    monkeypatch.setattr(text, "_reachable", lambda address: True)
    asked = []

    def snapshot_download(name, *, allow_patterns, local_files_only):
        if local_files_only:
            raise FileNotFoundError
        asked.append((name, allow_patterns))
        answer = answers[name]
        if isinstance(answer, Exception):
            raise answer
        return str(answer)

    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", snapshot_download
    )
    answers = {}
    return answers, asked


def test_the_hub_is_asked(tmp_path, online, capsys):
    answers, asked = online
    theirs = saved(tmp_path / "fetched")
    answers["openai-community/gpt2"] = tmp_path / "fetched"
    capsys.readouterr()
    check("gpt2", theirs)
    out, err = capsys.readouterr()
    assert out.startswith("weights: fetching openai-community/gpt2\n")
    assert not err
    ((_, patterns),) = asked
    assert patterns == [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
        "model-*.safetensors",
    ]


def test_the_hub_has_a_pickle_only(tmp_path, online):
    answers, asked = online
    folder = answers["a/b"] = tmp_path / "fetched"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    for allow_pickle in (False, True):
        with pytest.raises(
            FileNotFoundError,
            match=nowhere("a/b", "from the hub none with safetensors"),
        ):
            load("a/b", allow_pickle=allow_pickle)
    assert len(asked) == 2  # for other files
    assert not any("bin" in p for _, patterns in asked for p in patterns)


def test_a_pickle_that_was_copied_may_be_read(hub):
    theirs = pickled(copy_of(hub, "a/b"))
    with pytest.raises(FileNotFoundError, match="no copy"):
        load("a/b")
    check("a/b", theirs, allow_pickle=True)


@pytest.fixture
def progress_bars():
    """The switches of the client's progress bars, put back afterwards."""
    utils = huggingface_hub.utils
    silent = utils.are_progress_bars_disabled()
    switch = {
        True: utils.disable_progress_bars,
        False: utils.enable_progress_bars,
    }
    yield switch
    switch[silent]()


@pytest.mark.parametrize("silent", [False, True])
def test_the_hub_refuses(online, progress_bars, silent):
    progress_bars[silent]()
    answers, _ = online
    answers["a/b"] = ConnectionError("no")
    with pytest.raises(
        FileNotFoundError, match=nowhere("a/b", "from the hub ConnectionError")
    ) as caught:
        load("a/b")
    assert caught.value.__cause__ is answers["a/b"]
    assert huggingface_hub.utils.are_progress_bars_disabled() == silent


# What our class cannot be.


REFUSED = [
    (
        "gpt2",
        {"scale_attn_weights": False},
        "a gpt2 with scale_attn_weights is not in this book; expected True; "
        "got False",
    ),
    (
        "gpt2",
        {"scale_attn_by_inverse_layer_idx": True},
        "a gpt2 with scale_attn_by_inverse_layer_idx is not in this book; "
        "expected False; got True",
    ),
    (
        "gpt2",
        {"add_cross_attention": True},
        "a gpt2 with add_cross_attention is not in this book; expected False; "
        "got True",
    ),
    (
        "gpt2",
        {"is_causal": False},
        "a gpt2 with is_causal is not in this book; expected True; got False",
    ),
    (
        "llama",
        {"quantization_config": {"bits": 4}},
        "a llama with quantization_config is not in this book; expected None; "
        "got {'bits': 4}",
    ),
    (
        "gpt2",
        {"pruned_heads": {"0": [1]}},
        "a gpt2 with pruned_heads is not in this book; expected {}; got "
        "{'0': [1]}",
    ),
    (
        "gpt2",
        {"activation_function": "mish"},
        "activation_function is one that is not in this book; expected gelu_new "
        "or gelu_pytorch_tanh or gelu or relu or silu or swish; got 'mish'",
    ),
    (
        "llama",
        {"hidden_act": "gelu"},
        "hidden_act is one that is not in this book; expected silu or swish; "
        "got 'gelu'",
    ),
    (
        "gpt2",
        {"layer_norm_epsilon": "1e-5"},
        "layer_norm_epsilon is no such number; expected one from 0 on; got "
        "'1e-5'",
    ),
    (
        "llama",
        {"rms_norm_eps": math.nan},
        "rms_norm_eps is no such number; expected one from 0 on; got nan",
    ),
    (
        "llama",
        {"attention_bias": True},
        "our blocks have biases everywhere or nowhere; expected attention_bias "
        "and mlp_bias the same; got True and False",
    ),
    (
        "llama",
        {"mlp_bias": True},
        "our blocks have biases everywhere or nowhere; expected attention_bias "
        "and mlp_bias the same; got False and True",
    ),
    (
        "llama",
        {"head_dim": 8},
        "the heads have a width that ours cannot have; expected head_dim even "
        "and hidden_size / num_attention_heads; got 8 of 24 / 4",
    ),
    (
        "llama",
        {"hidden_size": 12, "head_dim": 3},
        "the heads have a width that ours cannot have; expected head_dim even "
        "and hidden_size / num_attention_heads; got 3 of 12 / 4",
    ),
    (
        "llama",
        {"num_key_value_heads": 3},
        "the heads cannot share keys and values; expected n_kv_heads a divisor "
        "of n_heads; got 3 and 4",
    ),
    (
        "llama",
        {
            "rope_parameters": {
                "rope_theta": 5e5,
                "rope_type": "linear",
                "factor": 2.0,
            }
        },
        "this rotation is not in this book; expected rope_type 'default' and "
        "the whole width rotated; got {'rope_theta': 500000.0, 'rope_type': "
        "'linear', 'factor': 2.0}",
    ),
    (
        "llama",
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "this rotation is not in this book; ",
    ),
    (
        "llama",
        {"rope_scaling": {"rope_type": "llama3"}},
        "this rotation is not in this book; ",
    ),
    (
        "llama",
        {"rope_scaling": {"factor": 4.0}},
        "this rotation is not in this book; ",
    ),
    (
        "llama",
        {"rope_parameters": {"partial_rotary_factor": 0.5}},
        "this rotation is not in this book; ",
    ),
    (
        "llama",
        {"partial_rotary_factor": 0.5},
        "this rotation is not in this book; ",
    ),
    (
        "llama",
        {"rope_parameters": {"rope_theta": 0.5}},
        "rope_theta is no such number; expected one from 1 on; got 0.5",
    ),
    (
        "gpt2",
        {"model_type": "bert"},
        "this is another architecture; expected model_type gpt2 or llama; got "
        "'bert'",
    ),
    (
        "llama",
        {"vocab_size": None},
        "a size is missing; expected vocab_size; got none",
    ),
    ("llama", {"intermediate_size": 0}, "a size is below 1; "),
]


@pytest.mark.parametrize("name, changes, message", REFUSED)
def test_what_our_class_cannot_be_is_refused(name, changes, message):
    config = {"gpt2": GPT2Config(**GPT2), "llama": LlamaConfig(**LLAMA)}[name]
    config = config.to_dict()
    config_of(config)  # as it is it can
    end = "" if message.endswith(" ") else "$"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}{end}"):
        config_of({**config, "head_dim": None, **changes})


@pytest.mark.parametrize(
    "changes, base",
    [
        ({"rope_parameters": None, "rope_theta": 7e5}, 7e5),  # as of old
        ({"rope_parameters": None, "rope_scaling": None}, 1e4),
        ({"rope_parameters": {"rope_theta": 3e5}}, 3e5),
        (
            {
                "rope_parameters": None,
                "rope_scaling": {"type": "default"},
                "rope_theta": 9,
            },
            9.0,
        ),
    ],
)
def test_the_base_wherever_it_stands(changes, base):
    config = LlamaConfig(**LLAMA).to_dict() | changes
    assert config_of(config).rotary_base == base


def test_null_is_no():
    config = GPT2Config(**GPT2).to_dict()
    nulls = {"add_cross_attention": None, "pruned_heads": None}
    assert config_of(config | nulls) == config_of(config)


def test_what_a_file_does_not_say_is_their_default():
    sizes = {k: v for k, v in GPT2.items() if "token" not in k}
    assert config_of({"model_type": "gpt2", **sizes}) == config_of(
        GPT2Config(**sizes).to_dict()
    )
    sizes = {k: v for k, v in LLAMA.items() if "token" not in k}
    assert config_of({"model_type": "llama", **sizes}) == config_of(
        LlamaConfig(**sizes).to_dict()
    )


def test_an_unknown_family():
    for call in (
        lambda: pairs_of("bert", 2),
        lambda: rename({}, None, "bert"),
    ):
        with pytest.raises(ValueError, match="this is another architecture"):
            call()
