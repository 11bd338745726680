"""A run, and the checkpoints from which it goes on to the bit.

A checkpoint is a model's file (see `attnbook.pretrained.save_model`). Beside
the weights it holds what the optimiser keeps, the states of the random
generators, the losses so far, and a checksum of all of that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from attnbook import files
from attnbook.gpt import GPT
from attnbook.run.processes import of_all_processes, processes_here
from attnbook.training import Recipe, make_optimizer
from attnbook.vocabulary import Vocabulary

#: Where a checkpoint's description keeps the checksum of its tensors.
CHECKSUM = "sha256"


class Run:
    """All that a training changes, and what tells it from another training.

    Args:
        model: the model, on the device where it is trained.
        recipe: how it is trained.
        vocabulary: of the model's tokens; it is kept with the weights.
        data: what is trained on, in words. A resumed run must say the same.
    """

    def __init__(
        self, model: GPT, recipe: Recipe, vocabulary: Vocabulary, data: str
    ) -> None:
        self.model = model
        self.recipe = recipe
        self.device = next(model.parameters()).device
        #: Draws the batches.
        self.generator = torch.Generator().manual_seed(recipe.seed)
        #: The loss of each step that has been made.
        self.losses: list[float] = []
        self.optimizer = make_optimizer(model, recipe)
        #: What a step changes, by name: the weights and what AdamW keeps.
        self.tensors = {f"model.{n}": t for n, t in model.state_dict().items()}
        for name, parameter in model.named_parameters():
            # As AdamW makes it at its first step. It is made here so that a
            # checkpoint can be copied into it before that.
            kept = {
                "step": torch.tensor(0.0),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
            self.optimizer.state[parameter] = kept
            for key, tensor in kept.items():
                self.tensors[f"optimizer.{name}.{key}"] = tensor
        #: The generators whose states a checkpoint keeps.
        self.randoms = {
            "random.batches": self.generator,
            "random.cpu": torch.default_generator,
        }
        if self.device.type == "cuda":
            index = self.device.index or torch.cuda.current_device()
            card = torch.cuda.default_generators[index]
            self.randoms["random.cuda"] = card
        #: What a resumed run must have in common with the stored one.
        self.about = self._described(vocabulary, data)

    def _described(self, vocabulary: Vocabulary, data: str) -> dict:
        """What tells this run from another: sizes, recipe, data and machine.

        It has been through JSON, as the description in a file has, so that the
        two can be compared: JSON makes a list of a tuple.
        """
        about = {
            "config": asdict(self.model.config),
            "recipe": asdict(self.recipe),
            "vocabulary": list(vocabulary),
            "data": data,
            "processes": processes_here()[1],
            "device": self.device.type,
        }
        return json.loads(json.dumps(about))

    def save(self, path: Path) -> None:
        """Write a checkpoint to a path, whole or not at all.

        Every process has to call this, because each has random states of its
        own. The first process collects them and writes.

        Raises:
            OSError: the file cannot be written. An older checkpoint stays as
                it was.
        """
        states = {
            name: torch.stack(of_all_processes(random.get_state()))
            for name, random in self.randoms.items()
        }
        losses = torch.tensor(self.losses, dtype=torch.float64)
        if processes_here()[0] == 0:
            tensors = self.tensors | states | {"losses": losses}
            about = self.about | {CHECKSUM: checksum(tensors)}
            files.write(path, tensors, about)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, all of which is checked beforehand.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is damaged, or is a checkpoint of another run.
        """
        stored, about = files.read(path)
        self._check_same_run(path, about)
        self._check_whole(path, stored, about)
        for name, tensor in self.tensors.items():
            tensor.copy_(stored[name])
        self.losses = stored["losses"].tolist()
        for name, random in self.randoms.items():
            # A copy: torch crashes on a part of a tensor.
            random.set_state(stored[name][processes_here()[0]].clone())

    def _check_same_run(self, path: Path, about: dict) -> None:
        """Raise a ValueError if a checkpoint is of another run.

        The message names only what differs.

        Args:
            path: the file, for the message.
            about: its description, to be compared with `self.about`.
        """
        for name, ours in self.about.items():
            theirs = about.get(name)
            if isinstance(ours, dict) and isinstance(theirs, dict):
                keys = [
                    key
                    for key in ours | theirs
                    if key not in ours
                    or key not in theirs
                    or ours[key] != theirs[key]
                ]
                ours = {key: ours.get(key, "nothing") for key in keys}
                theirs = {key: theirs.get(key, "nothing") for key in keys}
            if ours == theirs:
                continue
            hint = ""
            if name == "recipe" and "steps" in ours:
                hint = (
                    ". A run cannot be made longer, because its learning rate "
                    "has been falling towards its last step; to train on, "
                    "start a new run from the finished model (--start-from)"
                )
            raise ValueError(
                f"{path} is of another run; expected {name} "
                f"{files.shown(ours)}; got {files.shown(theirs)}{hint}"
            )

    def _check_whole(
        self, path: Path, stored: Mapping[str, Tensor], about: dict
    ) -> None:
        """Raise a ValueError if a checkpoint cannot be copied into this run.

        All tensors must be there with their shapes and types and nothing
        besides, the checksum must be right, and the random states must be
        usable.

        Args:
            path: the file, for the message.
            stored: its tensors by name.
            about: its description, which has the checksum.
        """
        done = stored.get("losses", torch.empty(0)).numel()
        done = min(max(done, 1), self.recipe.steps)
        expected = self.tensors | {"losses": torch.zeros(done).double()}
        for name, random in self.randoms.items():
            expected[name] = random.get_state().expand(processes_here()[1], -1)
        wanted = _shapes(expected)
        found = _shapes(stored)
        for name in wanted | found:
            if wanted.get(name) != found.get(name):
                raise ValueError(
                    f"{path} cannot be resumed; expected {files.shown(name)}: "
                    f"{wanted.get(name, 'nothing')}; got "
                    f"{found.get(name, 'nothing')}"
                )
        if checksum(stored) != about.get(CHECKSUM):
            raise ValueError(
                f"{path} is damaged: its numbers are not those that were "
                f"written; expected tensors of {CHECKSUM} "
                f"{about.get(CHECKSUM)}; got {checksum(stored)}"
            )
        try:
            for name, random in self.randoms.items():
                for state in stored[name]:
                    torch.Generator(random.device).set_state(state.clone())
        except RuntimeError as error:
            raise ValueError(
                f"{path} cannot be resumed; expected states of random "
                f"generators; got {error}"
            ) from None


def checksum(tensors: Mapping[str, Tensor]) -> str:
    """The SHA-256 of tensors: of their names, shapes, types and every bit."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        what = f"{name} {tuple(tensor.shape)} {tensor.dtype}\n"
        total.update(what.encode())
        total.update(tensor.flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def _shapes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """For each tensor its shape and type in words, for comparison."""
    return {n: f"{tuple(t.shape)} {t.dtype}" for n, t in tensors.items()}
