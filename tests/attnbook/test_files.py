"""Files: whole or not at all when written, judged when they are read."""

import json
import os
import re

import pytest
import torch
from safetensors.torch import save, save_file

from attnbook import files

A, B = torch.arange(6.0).view(2, 3), torch.tensor([1, 2])
TENSORS = {"a": A, "b": B, "c": torch.zeros(0)}
DEEP = "[" * 100_000


def test_what_is_written_is_read(tmp_path, monkeypatch):
    for home in "HOME", "USERPROFILE":  # of POSIX, of Windows
        monkeypatch.setenv(home, str(tmp_path))
    path = tmp_path / "f"
    about = {"z": [1, None, "ä"], "a": 0.1}
    shared = {**TENSORS, "turned": A.T, "same": A}
    files.write(path, shared, about)
    before = path.read_bytes()
    tensors, found = files.read("~/f")
    assert found == about and tensors.keys() == shared.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, shared[name])
        assert tensor.dtype == shared[name].dtype
    path.write_bytes(bytes(len(before)))  # the tensors need it no longer
    assert torch.equal(tensors["a"], A)
    files.write(path, tensors, found)
    assert path.read_bytes() == before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_a_file_that_is_not_written_whole_is_not_there(tmp_path, error):
    path = tmp_path / "f"
    path.write_bytes(b"before")
    words = re.escape(str(path)) if error is OSError else None
    with pytest.raises(error, match=words), files.replacing(str(path)) as file:
        file.write(b"after")
        raise error
    assert path.read_bytes() == b"before" and os.listdir(tmp_path) == ["f"]


def test_two_writers_do_not_meet(tmp_path):
    path, other = tmp_path / "f", tmp_path / "other"
    other.write_bytes(b"other")
    path.symlink_to(other)
    with files.replacing(path) as one, files.replacing(path) as two:
        one.write(b"one")
        two.write(b"two")
        one.flush()
        assert len(list(tmp_path.glob(".*.new-*"))) == 2  # beside it, hidden
    assert path.read_bytes() == b"one"
    assert other.read_bytes() == b"other" and len(os.listdir(tmp_path)) == 2


def test_all_is_on_the_disk_before_it_has_the_name(tmp_path, monkeypatch):
    path = tmp_path / "f"
    sizes = []

    def synced(handle):
        sizes.append((os.fstat(handle).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", synced)
    with files.replacing(path) as file:
        file.write(b"five.")
    assert sizes == [(5, False)]
    assert os.name == "nt" or path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("name", ["no/folder", "", "x" * 300])
def test_where_nothing_can_be_written(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(OSError, match="cannot be written") as caught:
        files.write(path, TENSORS, {})
    assert str(path) in str(caught.value)
    assert not [f for f in os.listdir(tmp_path.parent) if "writing" in f]


@pytest.mark.parametrize("path", ["", "~nosuchuser/x", "x" * 5000, "there"])
def test_what_is_no_path(path):
    with pytest.raises(FileNotFoundError) as caught:
        files.read(path)
    assert len(str(caught.value)) < 300


def test_a_file_cut_off_anywhere(tmp_path):
    """Last in the middle of b, behind which lie the 24 bytes of a."""
    path = tmp_path / "f"
    files.write(path, TENSORS, {})
    data = path.read_bytes()
    for size in range(len(data) - 24):
        path.write_bytes(data[:size])
        with pytest.raises(ValueError, match="is cut off") as caught:
            files.read(path)
    words = f"got {size} bytes of {len(data)}: b (2,) is the first"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: save(TENSORS),
        lambda _: save(TENSORS, {"attnbook": "[]"}),
        lambda _: save(TENSORS, {"attnbook": DEEP}),
        lambda _: save(TENSORS, {"attnbook": '"' + "x" * 10**6}),
        lambda data: b"\xff" * 8 + data[8:],
        lambda data: b"\x02" + bytes(7) + b"[]",
        lambda data: data + bytes(4),
        lambda data: b"\x80\x04" + data,
        lambda data: data.replace(b"[16,40]", b"[ 0,24]"),  # twice the same
        lambda data: data.replace(b"F32", b"F99", 1),
        lambda data: len(DEEP).to_bytes(8, "little") + DEEP.encode(),
    ],
)
def test_a_damaged_file(tmp_path, damage):
    path = tmp_path / "f"
    files.write(path, TENSORS, {})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match="damaged .*; expected") as caught:
        files.read(path)
    assert str(path) in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize("text", ["", "[]", "\udcff", DEEP, '{"a":' + DEEP])
def test_json_that_is_no_object(tmp_path, monkeypatch, text):
    path = tmp_path / "config.json"
    path.write_text('{"a": [1]}')
    with monkeypatch.context() as patch:
        patch.setattr(files, "MOST_JSON", path.stat().st_size)
        assert files.read_json(path) == {"a": [1]}
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match="config.json .* a JSON object"):
        files.read_json(path)
    os.truncate(path, 3 * 2**30)  # nothing but a length
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("read"))
    with pytest.raises(ValueError, match="config.json .* bytes"):
        files.read_json(path)


ONE = {"a": "one.safetensors"}
BOTH = ONE | {"b": "two.safetensors"}


def shards(folder, **about):
    """Two files, and an index that says this."""
    save_file({"a": A}, folder / "one.safetensors")
    save_file({"b": B}, folder / "two.safetensors")
    text = json.dumps(about)
    (folder / "model.safetensors.index.json").write_text(text)


def test_each_tensor_comes_from_the_file_that_the_index_names(tmp_path):
    shards(tmp_path, weight_map=BOTH)
    file, tensors = files.read_weights(tmp_path)
    assert file.name == "model.safetensors.index.json"
    assert tensors.keys() == {"a", "b"}
    path = tmp_path / "two.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match="two.safetensors is cut off"):
        files.read_weights(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match="two.safetensors"):
        files.read_weights(tmp_path)
    save_file({"b": B, "a": 666 + A}, path)
    with pytest.raises(ValueError, match="two.safetensors differ; .* 'a'"):
        files.read_weights(tmp_path)
    shards(tmp_path)
    with pytest.raises(ValueError, match="index.json"):
        files.read_weights(tmp_path)


def test_weights_are_whole_or_in_parts_and_never_a_pickle(tmp_path):
    with pytest.raises(FileNotFoundError, match="no weights in"):
        files.read_weights(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ValueError, match="as a pickle"):
        files.read_weights(tmp_path)
    shards(tmp_path, weight_map=BOTH)
    assert files.read_weights(tmp_path)[1].keys() == {"a", "b"}
    path = tmp_path / "model.safetensors"
    save_file({"c": B}, path)
    file, tensors = files.read_weights(tmp_path)
    assert file == path and torch.equal(tensors.pop("c"), B) and not tensors
    assert files.read_tensors(path)[1] == {}


ODD = ["../two.safetensors", "/two.safetensors", "a/b.safetensors", 3, None]
ODD += ["", "..", ".safetensors", "two.safetensors\n", "pytorch_model.bin"]
ODD += [r"..\two.safetensors", "x" * 10**6 + ".safetensors", [1], {}]


@pytest.mark.parametrize(
    "entries, words",
    [
        (ONE | {"b": "one.safetensors"}, "one.safetensors differ"),
        (BOTH | {"c": "two.safetensors"}, "'c'"),
        *((ONE | {"b": name}, "a weight_map of") for name in ODD),
        *((entries, "a weight_map of") for entries in ([1], {})),
    ],
)
def test_an_index_that_is_wrong(tmp_path, entries, words):
    shards(tmp_path, weight_map=entries)
    with pytest.raises(ValueError, match=words) as caught:
        files.read_weights(tmp_path)
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("value", ["\x1b" * 10**6, [[["x"] * 99] * 99], {}])
def test_a_value_is_shown_in_one_short_line(value):
    text = files.shown(value)
    assert 0 < len(text) < 3000 and text.isprintable()
    assert files.shown("x" * 198) == repr("x" * 198)
    assert len(files.shown("x" * 199)) == 200
