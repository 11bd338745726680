"""Finished models in files: published ones against transformers', the book's.

"Theirs" are random models of transformers, written by `save_pretrained`.
"""

import copy
import difflib
import json
import pickle
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import pytest
import safetensors
import torch
from safetensors.torch import load_file, save_file
from theirs import exact, their_config, their_model, tokens_of
from transformers import GPT2Config, GPT2LMHeadModel

from attnbook import files
from attnbook.families import FAMILIES, SIZES, config_of
from attnbook.gpt import GPT, GPTConfig
from attnbook.masks import padding_mask
from attnbook.pretrained import load, load_model, rename, save_model
from attnbook.teach.check.proof import agrees
from attnbook.training import loss_share
from attnbook.vocabulary import Vocabulary

THETA = {"rope_theta": 50.0, "rope_type": "default"}
#: What is different from a small model of the family.
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
    "llama, tied": {"tie_word_embeddings": True, "num_key_value_heads": None},
    "llama, eps": {"rms_norm_eps": 0.1},
    "llama, base": {"rope_parameters": THETA},
    "llama, wide heads": {"head_dim": 10},
    "qwen3": {},
    "qwen3, heads that are no share": {"hidden_size": 30, "head_dim": 8},
    "qwen3, one key head, tied": {
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "head_dim": 6,
    },
    "llama, biases": {"attention_bias": True, "mlp_bias": True},
}


@pytest.fixture(scope="module", params=CONFIGS)
def both(request, tmp_path_factory):
    """Ours, read from disk, and theirs."""
    family = request.param.partition(",")[0]
    folder = tmp_path_factory.mktemp("model")
    theirs = saved(folder, family, **CONFIGS[request.param])
    return load(folder), theirs


@pytest.fixture(scope="module", params=["float32", "float64"])
def pair(request, both, tmp_path_factory):
    """Ours, theirs, and how far they may be apart; float64 from its file."""
    if request.param == "float32":
        return *both, 1e-4
    folder = tmp_path_factory.mktemp("double")
    theirs = copy.deepcopy(both[1]).double()
    theirs.save_pretrained(folder)
    ours = load(folder)
    assert ours.token_embedding.weight.dtype == torch.float64
    theirs = theirs if ours.config.norm == "layer" else exact(theirs)
    return ours, theirs, 1e-10


def their_logits(theirs, tokens, real):
    positions = (real.long().cumsum(-1) - 1).clamp(min=0)
    options = {"attention_mask": real.long(), "position_ids": positions}
    return theirs(tokens, **options).logits[real]


@pytest.mark.parametrize(
    "lengths, side",
    [([1], "left"), ([24] * 3, "left"), ([9, 4], "left"), ([9, 1], "right")],
)
@torch.no_grad()
def test_logits_agree(pair, lengths, side):
    """Without padding, and with it."""
    ours, theirs, bound = pair
    real = padding_mask(lengths, side=side)
    tokens = tokens_of(*real.shape)
    expected = their_logits(theirs, tokens, real)
    assert expected.std() > 0.1  # so that the bound means something
    found = ours(tokens, real=None if real.all() else real)[real]
    agrees(found, expected, name="theirs", within=bound)


@pytest.mark.parametrize("kept", [[9, 6, 4], [12, 12, 12]])
@pytest.mark.parametrize("chunks", [[6] + [1] * 6, [6, 1, 5]])
@torch.inference_mode()
def test_logits_agree_with_the_cache(pair, chunks, kept):
    """Rows of 12, of which the first are padding in some."""
    ours, theirs, bound = pair
    tokens = tokens_of(3, 12)
    real = torch.arange(12) >= 12 - torch.tensor(kept)[:, None]
    expected = their_logits(theirs, tokens, real)
    cache = ours.new_cache(3)
    parts = [
        ours(t, real=r, cache=cache)
        for t, r in zip(tokens.split(chunks, 1), real.split(chunks, 1))
    ]
    agrees(torch.cat(parts, 1)[real], expected, name="theirs", within=bound)


def gradients(model, loss):
    names, parameters = zip(*model.named_parameters())
    return dict(zip(names, torch.autograd.grad(loss, parameters)))


def test_gradients_agree(both):
    """Of every weight: one that none reaches is an error of torch's."""
    ours, theirs = both
    assert not ours.training
    tokens = tokens_of(2, 9)
    found = gradients(ours, loss_share(ours, tokens[:, :-1], tokens[:, 1:]))
    expected = gradients(theirs, theirs(tokens, labels=tokens).loss)
    expected = rename(expected, ours, theirs.config.model_type)
    agrees(found, expected, name="theirs", within=1e-4)
    assert all(weight.is_contiguous() for weight in ours.parameters())


COUNTS = 124_439_808, 354_823_168, 774_030_080, 1_557_611_200


@pytest.mark.parametrize("name, count", [*zip(SIZES, COUNTS)])
def test_the_sizes_agree(tmp_path, name, count):
    """In counts; in values with heads of four, from shards."""
    ours = SIZES[name]
    assert ours == GPTConfig() or name != "gpt2"
    sizes = {"n_layer": ours.n_layers, "n_head": ours.n_heads}
    config = GPT2Config(n_embd=64 * ours.n_heads, **sizes)
    assert config_of(config.to_dict()) == ours
    with torch.device("meta"):
        theirs = GPT2LMHeadModel(config)
    assert sum(p.numel() for p in theirs.parameters()) == count
    assert ours.parameter_count() == count
    sizes["n_embd"] = 4 * ours.n_heads
    check(tmp_path, saved(tmp_path, shards="1MB", std=0.2, **sizes))


# What a file may look like.


def saved(folder, family="gpt2", *, shards="1GB", **changes):
    theirs = their_model(family, **changes)
    theirs.save_pretrained(folder, max_shard_size=shards)
    return theirs


@torch.no_grad()
def check(folder, theirs):
    ours = load(folder)
    tokens = tokens_of(2, 9)
    agrees(ours(tokens), theirs(tokens).logits, name="theirs", within=1e-4)
    return ours


def change(folder, changes):
    """Give a tensor (with a dot in its name) or a setting another value; a
    tensor another name, or None, which takes it away."""
    file, settings = folder / "model.safetensors", folder / "config.json"
    tensors = load_file(file)
    about = json.loads(settings.read_text())
    for name, new in changes.items():
        if "." not in name:
            about[name] = new
            continue
        old = tensors.pop(name, None)
        if new is not None:
            tensors |= {new: old} if isinstance(new, str) else {name: new}
    save_file(tensors, file)
    settings.write_text(json.dumps(about))


FAMILY = pytest.mark.parametrize("family", ["gpt2", "llama"])


BUFFERS = {
    "gpt2": ("h.1.attn.bias", "h.0.attn.masked_bias"),
    "llama": ("layers.1.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
}


@FAMILY
def test_neither_buffers_nor_prefixes_are_needed(tmp_path, family):
    """Buffers are no weights; a body alone has no prefix."""
    theirs = saved(tmp_path, family)
    prefix = FAMILIES[family].prefix
    mask = torch.ones(3, dtype=torch.uint8)
    change(tmp_path, {prefix + n: mask.clone() for n in BUFFERS[family]})
    check(tmp_path, theirs)
    names = load_file(tmp_path / "model.safetensors")
    stripped = {n: n.removeprefix(prefix) for n in names}
    assert any(a != b for a, b in stripped.items())
    change(tmp_path, stripped)
    check(tmp_path, theirs)


@FAMILY
def test_a_tied_head_that_is_in_the_file(tmp_path, family):
    theirs = saved(tmp_path, family, tie_word_embeddings=True)
    head = theirs.lm_head.weight.detach()
    change(tmp_path, {"lm_head.weight": head.clone()})
    assert check(tmp_path, theirs).head is None
    change(tmp_path, {"lm_head.weight": head + torch.eye(*head.shape)})
    with pytest.raises(ValueError, match="lm_head.weight equal to"):
        load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@FAMILY
@torch.no_grad()
def test_the_type_is_the_files(tmp_path, family, dtype):
    theirs = their_model(family).to(dtype)
    theirs.save_pretrained(tmp_path)
    ours = load(tmp_path)
    tokens = tokens_of(2, 9)
    assert {p.dtype for p in ours.parameters()} == {dtype}
    assert ours(tokens).dtype == dtype
    theirs = type(theirs).from_pretrained(tmp_path, dtype=torch.float32)
    expected = theirs(tokens).logits
    agrees(ours.float()(tokens), expected, name="theirs", within=1e-4)


def test_rename_copies_only_what_it_stacks():
    theirs = their_model("llama")
    tensors = theirs.state_dict()
    config = config_of(theirs.config.to_dict())
    ours = rename(tensors, GPT(config), "llama")
    starts = {t.data_ptr() for t in tensors.values()}  # Llama splits none
    kept = {n for n, t in ours.items() if t.data_ptr() in starts}
    stacked = {f"blocks.{n}.attention.key_value.weight" for n in range(2)}
    assert ours.keys() - kept == stacked


T = "transformer."
V = "self_attn.v_proj.weight"
ZEROS = torch.zeros
H = T + "h."
L = "model.layers."
RMS = "model.norm.weight"
ONE = {H + "1.ln_1.weight": H + "1.ln1.weight"}
TWO = ONE | {H + "0.ln_2.bias": H + "0.ln2.bias"}
LONG = "\x1b[31m." + "x" * 10**6
#: A family, and what a tensor (there is a dot in its name) or a setting
#: becomes: another, another name, nothing. And words of the message.
BROKEN = [
    ("gpt2", ONE, "lacks 1 .*1.ln_1.w.* blocks.1.att.*got .*1.ln1.w"),
    ("gpt2", TWO, "lacks 2 .*1.ln1.w"),
    ("gpt2", {H + "0.attn.c_attn.weight": None}, r"c_attn.*\(24, 72\).* no o"),
    ("llama", {L + "1." + V: None}, "blocks.1.*key_value.weight"),
    ("llama", {"lm_head.weight": None}, "lm_head.weight"),
    ("gpt2", {H + "2.ln_1.bias": ZEROS(24)}, "h.2.ln_1.bias"),
    ("gpt2", {"wte.weight": ZEROS(37, 24)}, "got wte.weight"),
    ("gpt2", {LONG: ZEROS(1)}, r"got .x1b\[31m\.x+\.\.\.x+ too"),
    ("gpt2", {T + "wte.weight": ZEROS(40, 24)}, r"wte.*got \(40, 24\)"),
    ("gpt2", {H + "0.mlp.c_fc.weight": ZEROS(96, 24)}, "c_fc.*not in a Conv"),
    ("llama", {L + "1." + V: ZEROS(24, 12)}, r"v_proj.*\(24, 12\)$"),
    ("gpt2", {T + "ln_f.bias": ZEROS(24).half()}, "float16 in .*ln_f.bias"),
    ("gpt2", {T + "ln_f.bias": ZEROS(24) / 0}, "norm.bias; got NaN"),
    ("llama", {RMS: ZEROS(24).log()}, "norm.weight; got .* infinity"),
    ("llama", {RMS: 1 / torch.arange(24)}, "norm.weight; got .* infinity"),
    # Sizes that lie: a module of them would take all memory, or more.
    ("gpt2", {"n_layer": 10**9}, "n_layers 1000000000"),
    ("gpt2", {"vocab_size": 2**31 - 1, "n_embd": 2**30}, "cannot hold"),
    ("gpt2", {"n_positions": 10**400}, "n_positions"),
    ("llama", {"rope_parameters": {"rope_theta": 10**400}}, "rotary_base"),
    ("gpt2", {"n_head": "4" * 10**6}, "n_head"),
]


@pytest.mark.parametrize("family, changes, words", BROKEN)
def test_misfits_are_named(tmp_path, monkeypatch, family, changes, words):
    saved(tmp_path, family)
    change(tmp_path, changes)
    monkeypatch.setattr(  # nothing is filled, not even in part
        GPT, "load_state_dict", lambda *a, **k: pytest.fail("filled")
    )
    with pytest.raises(ValueError, match=words) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert str(tmp_path) in message and message.isprintable()
    assert len(message) < 1000


def test_few_names_are_compared_with_one_that_is_missing(monkeypatch):
    """To compare 30,000, or one of a megabyte, takes its time."""
    near = Mock(side_effect=lambda name, names, **_: names[:1])
    monkeypatch.setattr(difflib, "get_close_matches", near)
    names = ["x" * 10**6, *(f"x{n}" for n in range(1000))]
    model = GPT(config_of(their_config("gpt2").to_dict()))
    with pytest.raises(ValueError, match="got x0 of"):
        rename({n: ZEROS(37, 24) for n in names}, model, "gpt2")
    asked = near.call_args.args[1]
    assert len(asked) < 500 and max(map(len, asked)) < 500


class Walk:
    """Which functions of the book's package are called, one after another.

    A configuration and a model check and build themselves: what they call on
    the way is theirs, and is not counted.
    """

    INSIDE = ("GPT.__init__", "GPTConfig.__post_init__")

    def __init__(self):
        self.called = []
        self.inside = 0

    def __call__(self, frame, event, _):
        code = frame.f_code
        path = Path(code.co_filename)
        if path.parent.name != "attnbook" or code.co_name.startswith("<"):
            return
        if event == "call":
            if self.inside == 0:
                self.called.append(f"{path.stem}.{code.co_qualname}")
            self.inside += code.co_qualname in self.INSIDE
        elif event == "return":
            self.inside -= code.co_qualname in self.INSIDE


@FAMILY
def test_a_folder_becomes_a_model_in_few_steps(tmp_path, family):
    """Five rooms, 25 names, and one GPT that is built."""
    saved(tmp_path, family)
    walk = Walk()
    sys.setprofile(walk)
    try:
        load(tmp_path)
    finally:
        sys.setprofile(None)
    rooms = {name.partition(".")[0] for name in walk.called}
    assert rooms == {"pretrained", "files", "families", "gpt", "values"}
    assert len(set(walk.called)) <= 25
    assert walk.called.count("gpt.GPT.__init__") == 1


# Pickles, and folders without what they need.


def test_a_pickle_is_never_read_but_can_be_converted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    theirs = saved(tmp_path)
    file = tmp_path / "model.safetensors"
    file.unlink()
    torch.save(theirs.state_dict(), "pytorch_model.bin")  # one tensor twice
    with monkeypatch.context() as patch:
        for reader in (torch, pickle):
            patch.setattr(reader, "load", lambda *a, **k: pytest.fail("read"))
        with pytest.raises(ValueError, match="pickle.*model.bin") as caught:
            load(tmp_path)
    told = str(caught.value).rpartition("once: ")[2]
    exec(told, {"torch": torch, "safetensors": safetensors})
    check(tmp_path, theirs)
    file.write_bytes(b"taken before the pickle")
    with pytest.raises(ValueError, match="model.safetensors"):
        load(tmp_path)


def test_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "here")
    shutil.copytree("here", "no weights")
    (tmp_path / "no weights" / "model.safetensors").unlink()
    (tmp_path / "empty").mkdir()
    odd = {"here/model.safetensors": "a file", "empty": "config.json"}
    odd |= {"": "path", "x" * 5000: "path", "no weights": "model.safetensors"}
    names = ("there", "./there", "a/b/c", "a b", "~nosuchuser/x")
    for path, words in (odd | {name: name for name in names}).items():
        with pytest.raises(FileNotFoundError, match=words):
            load(path)


def test_the_hub_is_asked(tmp_path, monkeypatch):
    hub = Mock(side_effect=[ConnectionError, str(tmp_path), str(tmp_path)])
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub)
    monkeypatch.setenv("ATTNBOOK_OFFLINE", "1")
    with pytest.raises(FileNotFoundError, match="ConnectionError") as caught:
        load("gpt2")
    assert "hf download openai-community/gpt2" in str(caught.value)
    check("gpt2", saved(tmp_path))
    monkeypatch.delenv("ATTNBOOK_OFFLINE")
    load("someone/a-model.2")
    names = [call.args[0] for call in hub.call_args_list[1:]]
    assert names == ["openai-community/gpt2", "someone/a-model.2"]
    offline, online = (call.kwargs for call in hub.call_args_list[1:])
    assert offline["local_files_only"] and not online["local_files_only"]
    assert len(offline["revision"]) == 40 and online["revision"] is None
    for options in (offline, online):
        assert not any("bin" in p for p in options["allow_patterns"])


def test_a_copy_on_this_machine_needs_no_network(tmp_path, monkeypatch):
    """With the hub's own client."""
    constants = huggingface_hub.constants
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--a--b"
    commit = 40 * "0"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    theirs = saved(repository / "snapshots" / commit)
    check("a/b", theirs)
    with pytest.raises(FileNotFoundError, match="a/c"):
        load("a/c")


# The book's own models.


SMALL = GPTConfig(vocab_size=5, context=8, d_model=8, n_heads=2, n_layers=2)
WORDS = Vocabulary(["a", "b", "c", "d", "e"])
WEIGHT = "model.norm.weight"


def test_a_model_that_is_saved_is_loaded(tmp_path):
    model = GPT(SMALL).double()
    path = tmp_path / "m.safetensors"
    save_model(path, model, WORDS, about={"note": "a test"})
    found = load_model(path)
    assert found.model.config == SMALL and not found.model.training
    assert list(found.vocabulary) == list(WORDS)
    assert found.about == {"note": "a test"}
    expected = model.float().state_dict()
    for name, tensor in found.model.state_dict().items():
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, expected[name])
    tensors, about = files.read(path)  # a checkpoint of a run has more in it
    files.write(path, tensors | {"losses": torch.ones(3)}, about)
    assert load_model(path).model.config == SMALL
    save_model(path, model)
    assert load_model(path).vocabulary is None


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda t, a: t.pop(WEIGHT), "norm.weight"),
        (lambda t, a: t.update({"model.x": ZEROS(1)}), "got x too"),
        (lambda t, a: t.update({n: v.bool() for n, v in t.items()}), "bool"),
        (lambda t, a: t.clear(), "0 tensors"),
        (lambda t, a: a.pop("config"), "config"),
        (lambda t, a: a.update(config=[1]), "GPTConfig"),
        (lambda t, a: a.update(vocabulary=["a"]), "1 words for 5"),
        (lambda t, a: a.update(vocabulary=[["a"]] * 5), "vocabulary"),
        (lambda t, a: a["config"].update(n_layers=10**8), "n_layers 10"),
        (lambda t, a: a["config"].update(vocab_size=10**18), "of its size"),
        (lambda t, a: a["config"].update(width=3), "width"),
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


@pytest.mark.parametrize("positions", ["rotary", "alibi", "sinusoidal"])
def test_every_kind_of_model_comes_back(tmp_path, positions):
    other = {"norm": "rms", "activation": "swiglu", "n_kv_heads": 1}
    other |= {"tied": False, "bias": False, "d_ff": 3}
    model = GPT(replace(SMALL, positions=positions, **other)).eval()
    save_model(tmp_path / "m", model)
    found = load_model(tmp_path / "m").model
    tokens = torch.arange(5)[None]
    assert torch.equal(found(tokens), model(tokens))
