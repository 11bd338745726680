"""Finished models in files: published ones against transformers', the book's.

"Theirs" are random models of transformers, written by `save_pretrained`.
"""

import copy
import difflib
import json
import math
import pickle
import shutil
from dataclasses import replace

import huggingface_hub
import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

from attnbook import files
from attnbook.cache import GrowingCache
from attnbook.families import FAMILIES, SIZES, config_of
from attnbook.gpt import GPT, GPTConfig
from attnbook.masks import padding_mask
from attnbook.pretrained import load, load_model, rename, save_model
from attnbook.teach.proof import agrees
from attnbook.text import Vocabulary

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
    "gpt2, gelu": {"activation_function": "gelu"},
    "gpt2, relu": {"activation_function": "relu"},
    "llama": {},
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


def their_logits(theirs, tokens, real):
    positions = (real.long().cumsum(-1) - 1).clamp(min=0)
    options = {"attention_mask": real.long(), "position_ids": positions}
    return theirs(tokens, **options).logits[real]


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
        found = ours(tokens, real=real)[real]
        agrees(found, expected, name="theirs", within=bound)


@pytest.mark.parametrize("kept", [[9, 6, 4], [12, 12, 12]])
@pytest.mark.parametrize("chunks", [[6] + [1] * 6, [6, 1, 5]])
def test_logits_agree_with_the_cache(pair, chunks, kept):
    """Rows of 12, of which the first are padding in some."""
    ours, theirs, bound = pair
    tokens = tokens_of(3, 12)
    real = torch.arange(12) >= 12 - torch.tensor(kept)[:, None]
    with torch.inference_mode():
        expected = their_logits(theirs, tokens, real)
        caches = [ours.new_cache(3), GrowingCache(ours.config.n_layers)]
        for cache in caches if real.all() else caches[:1]:
            parts = [
                ours(t, real=r, cache=cache)
                for t, r in zip(tokens.split(chunks, 1), real.split(chunks, 1))
            ]
            found = torch.cat(parts, 1)[real]
            agrees(found, expected, name="theirs", within=bound)


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
    found = rename(theirs.transformer.state_dict(), ours, "gpt2")
    assert {n: t.shape for n, t in found.items()} == {
        n: t.shape for n, t in expected.items()
    }


@pytest.mark.parametrize("name", SIZES)
def test_all_depths_agree(name, tmp_path):
    """The depth and the heads of a size, each head four wide; in shards."""
    layers, heads = SIZES[name].n_layers, SIZES[name].n_heads
    sizes = {"n_layer": layers, "n_head": heads, "n_embd": 4 * heads}
    theirs = theirs_of("gpt2", std=0.2, **sizes)
    theirs.save_pretrained(tmp_path, max_shard_size="1MB")
    check(tmp_path, theirs)


# What a file may look like.


def saved(folder, name="gpt2", **options):
    theirs = theirs_of(name)
    theirs.save_pretrained(folder, **options)
    return theirs


def check(folder, theirs):
    ours, tokens = load(folder), tokens_of(2, 9)
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
    prefix = FAMILIES[name].prefix

    def strip(tensors):
        assert any(n.startswith(prefix) for n in tensors)
        for old in list(tensors):
            tensors[old.removeprefix(prefix)] = tensors.pop(old)

    change_tensors(tmp_path, strip)
    check(tmp_path, theirs)


BUFFERS = {
    "gpt2": ["transformer.h.1.attn.bias", "transformer.h.0.attn.masked_bias"],
    "llama": [
        "model.layers.1.self_attn.rotary_emb.inv_freq",
        "model.rotary_emb.inv_freq",
    ],
}


@pytest.mark.parametrize("name", BUFFERS)
def test_buffers_are_no_weights(tmp_path, name):
    theirs, buffer = saved(tmp_path, name), torch.ones(3, dtype=torch.uint8)
    buffers = {name: buffer.clone() for name in BUFFERS[name]}
    change_tensors(tmp_path, lambda t: t.update(buffers))
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
    with pytest.raises(ValueError, match="lm_head.weight equal to"):
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
        found, expected = ours.float()(tokens), theirs(tokens).logits
        agrees(found, expected, name="theirs", within=1e-4)


def test_a_model_needs_its_file_no_longer(tmp_path):
    saved(tmp_path)
    ours, file = load(tmp_path), tmp_path / "model.safetensors"
    before = ours(tokens_of(2, 9))
    with open(file, "r+b") as opened:
        opened.write(bytes(file.stat().st_size))
    assert torch.equal(ours(tokens_of(2, 9)), before)


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


T, L = "transformer.", "model.layers."
ZEROS = torch.zeros
CONFIG = config_of(GPT2Config(**GPT2).to_dict())


def put(name, tensor):
    return lambda t: t.update({name: tensor})


#: A family, what is done to its tensors, and words of the message.
BROKEN = {
    "renamed": (
        "gpt2",
        lambda t: t.update({T + "h.1.n.w": t.pop(T + "h.1.ln_1.weight")}),
        "lacks 1 .*h.1.ln_1.weight .24,., for blocks.1.attention_norm.weight; "
        "got transformer.h.1.n.w .*renamed",
    ),
    "the nearest of two": (
        "gpt2",
        lambda t: t.update(
            {
                T + "h.1.ln1.weight": t.pop(T + "h.1.ln_1.weight"),
                T + "h.0.ln2.bias": t.pop(T + "h.0.ln_2.bias"),
            }
        ),
        "lacks 2 .*h.1.ln_1.weight .* got transformer.h.1.ln1.weight",
    ),
    "missing": (
        "gpt2",
        lambda t: t.pop(T + "h.0.attn.c_attn.weight"),
        r"h.0.attn.c_attn.weight \(24, 72\), .* no other tensor of that shape",
    ),
    "missing, llama": (
        "llama",
        lambda t: t.pop(L + "1.self_attn.v_proj.weight"),
        r"v_proj.weight \(12, 24\), for blocks.1.attention.key_value.weight",
    ),
    "no head": ("llama", lambda t: t.pop("lm_head.weight"), "lm_head.weight"),
    "a block too many": ("gpt2", put(T + "h.2.ln_1.bias", ZEROS(24)), "h.2.l"),
    "two names": ("gpt2", put("wte.weight", ZEROS(37, 24)), "got wte.weight"),
    "a name that colours a terminal": (
        "gpt2",
        put("\x1b[31m" + "x" * 10**6, ZEROS(1)),
        r"got .x1b\[31mx+\.\.\.x+ too",
    ),
    "another vocabulary": (
        "gpt2",
        put(T + "wte.weight", ZEROS(40, 24)),
        r"wte.weight in .*\(37, 24\).* got \(40, 24\)",
    ),
    "one number less": (
        "llama",
        put("model.norm.weight", ZEROS(23)),
        r"model.norm.weight in .* got \(23,\)",
    ),
    "turned": (
        "gpt2",
        put(T + "h.0.mlp.c_fc.weight", ZEROS(96, 24)),
        "c_fc.weight in .*, as in a Linear and not in a Conv1D$",
    ),
    "turned, llama": (
        "llama",
        put(L + "0.mlp.up_proj.weight", ZEROS(24, 41)),
        r"up_proj.weight in .* got \(24, 41\)$",
    ),
    "two types": (
        "gpt2",
        put(T + "ln_f.bias", ZEROS(24).half()),
        "float16 in transformer.ln_f.bias",
    ),
    "integers": (
        "gpt2",
        lambda t: t.update({n: a.to(torch.int8) for n, a in t.items()}),
        "int8 in ",
    ),
    "a NaN": (
        "gpt2",
        lambda t: t[T + "ln_f.bias"][3:4].fill_(math.nan),
        "norm.bias; got NaN",
    ),
    "an infinity": (
        "llama",
        lambda t: t["model.norm.weight"][3:4].fill_(-math.inf),
        "norm.weight; got NaN or infinity",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_wrong_tensors_are_named(tmp_path, monkeypatch, case):
    name, change, words = BROKEN[case]
    saved(tmp_path, name)
    change_tensors(tmp_path, change)
    monkeypatch.setattr(  # nothing is filled, not even in part
        GPT, "load_state_dict", lambda *a, **k: pytest.fail("filled")
    )
    with pytest.raises(ValueError, match=words) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert str(tmp_path / "model.safetensors") in message
    assert len(message) < 1000 and message.isprintable()


def test_few_names_are_compared_with_one_that_is_missing(monkeypatch):
    """To compare 30,000, or one of a megabyte, takes its time."""
    asked = []

    def get_close_matches(name, names, **_):
        asked.extend(names)
        return names[:1]

    monkeypatch.setattr(difflib, "get_close_matches", get_close_matches)
    names = ["x" * 10**6, *(f"x{n}" for n in range(1000))]
    with pytest.raises(ValueError, match="got x0 of"):
        rename({n: ZEROS(37, 24) for n in names}, CONFIG, "gpt2")
    assert len(asked) < 500 and max(map(len, asked)) < 500


@pytest.mark.parametrize(
    "name, lie, words",
    [
        ("gpt2", {"n_layer": 10**9}, "n_layers 1000000000"),
        ("llama", {"num_hidden_layers": 10**9}, "n_layers 1000000000"),
        ("gpt2", {"vocab_size": 2**31 - 1, "n_embd": 2**30}, "cannot hold"),
        ("llama", {"intermediate_size": 2**63}, "intermediate_size"),
        ("gpt2", {"n_positions": 10**400}, "n_positions"),
        ("llama", {"rope_theta": 10**400}, "rotary_base"),
        ("gpt2", {"n_head": 5}, "n_heads"),
        ("gpt2", {"n_head": "4" * 10**6}, "n_head"),
    ],
)
def test_a_config_that_lies_is_found_out_at_once(tmp_path, name, lie, words):
    """Before a module is made: each would take all memory, or more."""
    saved(tmp_path, name)
    file = tmp_path / "config.json"
    about = json.loads(file.read_text()) | {"rope_parameters": None}
    file.write_text(json.dumps(about | lie))
    with pytest.raises(ValueError, match=words) as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value)) < 1000


# Pickles, and folders without what they need.


def test_a_pickle_is_never_read_but_can_be_converted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    theirs = saved(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    torch.save(theirs.state_dict(), "pytorch_model.bin")  # one tensor twice
    with monkeypatch.context() as patch:
        for reader in (torch, pickle):
            patch.setattr(reader, "load", lambda *a, **k: pytest.fail("read"))
        with pytest.raises(ValueError, match="pickle.*model.bin") as caught:
            load(tmp_path)
    told = str(caught.value).rpartition("once: ")[2]
    exec(told, {"torch": torch, "safetensors": safetensors})
    check(tmp_path, theirs)
    (tmp_path / "model.safetensors").write_bytes(b"taken before the pickle")
    with pytest.raises(ValueError, match="model.safetensors"):
        load(tmp_path)


def test_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "here")
    shutil.copytree("here", "no weights")
    (tmp_path / "no weights" / "model.safetensors").unlink()
    (tmp_path / "empty").mkdir()
    for path, words in {
        "here/model.safetensors": "a file",
        "there": "there",
        "./there": "there",
        "a/b/c": "a/b/c",
        "a b": "a b",
        "": "path",
        "~nosuchuser/x": "nosuchuser",
        "x" * 5000: "path",
        "empty": "config.json",
        "no weights": "model.safetensors.index.json",
    }.items():
        with pytest.raises(FileNotFoundError, match=words):
            load(path)


# The hub.


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """What the hub is asked, and a folder that it answers with."""
    asked = []
    monkeypatch.setenv("ATTNBOOK_OFFLINE", "1")

    def snapshot_download(name, **options):
        asked.append((name, options))
        if not (tmp_path / "config.json").exists():
            raise ConnectionError("no")
        return str(tmp_path)

    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", snapshot_download
    )
    return asked


def test_the_hub_is_asked(tmp_path, hub, monkeypatch):
    check("gpt2", saved(tmp_path))
    monkeypatch.delenv("ATTNBOOK_OFFLINE")
    load("someone/a-model.2")
    (first, offline), (second, online) = hub
    assert (first, second) == ("openai-community/gpt2", "someone/a-model.2")
    assert offline["local_files_only"] and not online["local_files_only"]
    assert len(offline["revision"]) == 40 and online["revision"] is None
    for options in (offline, online):
        assert not any("bin" in p for p in options["allow_patterns"])


def test_the_hub_does_not_answer(hub):
    with pytest.raises(FileNotFoundError, match="no model gpt2; .*") as caught:
        load("gpt2")
    assert "ConnectionError" in str(caught.value)
    assert "hf download openai-community/gpt2" in str(caught.value)


def test_a_copy_on_this_machine_needs_no_network(tmp_path, monkeypatch):
    """With the hub's own client."""
    monkeypatch.setattr(
        huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path)
    )
    repository, commit = tmp_path / "models--a--b", 40 * "0"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    theirs = saved(repository / "snapshots" / commit)
    check("a/b", theirs)
    with pytest.raises(FileNotFoundError, match="a/c"):
        load("a/c")


# The book's own models.


SMALL = GPTConfig(vocab_size=5, context=8, d_model=8, n_heads=2, n_layers=2)
WORDS = Vocabulary(["a", "b", "c", "d", "e"])


def test_a_model_that_is_saved_is_loaded(tmp_path):
    model, path = GPT(SMALL).double(), tmp_path / "m.safetensors"
    save_model(path, model, WORDS, about={"note": "a test"})
    found = load_model(path)
    assert found.model.config == SMALL and not found.model.training
    assert list(found.vocabulary) == list(WORDS)
    assert found.about == {"note": "a test"}
    expected = model.float().state_dict()
    for name, tensor in found.model.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected[name])
    save_model(path, model)
    assert load_model(path).vocabulary is None


def test_a_checkpoint_has_more_in_it(tmp_path):
    save_model(tmp_path / "m", GPT(SMALL), WORDS)
    tensors, about = files.read(tmp_path / "m")
    files.write(tmp_path / "m", tensors | {"losses": torch.ones(3)}, about)
    assert load_model(tmp_path / "m").model.config == SMALL


def of_config(**changes):
    return lambda t, about: about["config"].update(changes)


WEIGHT = "model.norm.weight"


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda t, a: t.pop(WEIGHT), "norm.weight"),
        (lambda t, a: t.update({"model.x": ZEROS(1)}), "got x too"),
        (lambda t, a: t.update({WEIGHT: ZEROS(9)}), "norm.weight"),
        (lambda t, a: t.update({WEIGHT: ZEROS(8).long()}), "int64"),
        (lambda t, a: t.update({n: v.bool() for n, v in t.items()}), "bool"),
        (lambda t, a: t[WEIGHT].fill_(math.nan), "norm.weight; got NaN"),
        (lambda t, a: t.clear(), "0 tensors"),
        (lambda t, a: a.pop("config"), "config"),
        (lambda t, a: a.update(config=[1]), "GPTConfig"),
        (lambda t, a: a.update(vocabulary=["a"]), "1 words for 5"),
        (lambda t, a: a.update(vocabulary=[["a"]] * 5), "vocabulary"),
        (of_config(n_layers=10**8), "n_layers 100000000"),
        (of_config(vocab_size=10**18), "vocabulary of its size"),
        (of_config(d_model=2**60), "cannot hold"),
        (of_config(rotary_base="x"), "rotary_base"),
        (of_config(width=3), "width"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path, change, words):
    path = tmp_path / "m.safetensors"
    save_model(path, GPT(SMALL), WORDS)
    tensors, about = files.read(path)
    change(tensors, about)
    files.write(path, tensors, about)
    with pytest.raises(ValueError, match=words) as caught:
        load_model(path)
    assert str(path) in str(caught.value)


def test_every_kind_of_model_comes_back(tmp_path):
    for changes in (
        {"positions": "rotary", "norm": "rms", "activation": "swiglu"},
        {"positions": "alibi", "tied": False, "bias": False},
        {"positions": "sinusoidal", "n_kv_heads": 1, "d_ff": 3},
    ):
        model = GPT(replace(SMALL, **changes)).eval()
        save_model(tmp_path / "m", model)
        found = load_model(tmp_path / "m").model
        tokens = torch.arange(5)[None]
        assert torch.equal(found(tokens), model(tokens))
