"""A run, and the checkpoints from which it goes on to the bit.

A checkpoint is a model's file (see `attnbook.pretrained.save_model`) that
holds what the optimiser keeps and the random generators beside the weights.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from attnbook import files
from attnbook.gpt import GPT
from attnbook.run.processes import of_all_processes, processes_here
from attnbook.text import Vocabulary
from attnbook.training import Recipe, make_optimizer


class Run:
    """All that a training changes, and what tells it from another one.

    Args:
        data: in words what is trained on; a resumed run must say the same.
    """

    def __init__(
        self, model: GPT, recipe: Recipe, vocabulary: Vocabulary, data: str
    ) -> None:
        self.model, self.recipe = model, recipe
        self.device = next(model.parameters()).device
        self.optimizer = make_optimizer(model, recipe)
        self.generator = torch.Generator().manual_seed(recipe.seed)
        self.losses: list[float] = []
        about = {
            "config": asdict(model.config),
            "recipe": asdict(recipe),
            "vocabulary": list(vocabulary),
            "data": data,
            "processes": processes_here()[1],
            "device": self.device.type,
        }
        self.about = json.loads(json.dumps(about))  # as it will be read

    def save(self, path: Path) -> None:
        """Write a checkpoint; every process calls it, the first one writes."""
        random = {"random.cpu": of_all_processes(torch.get_rng_state())}
        if self.device.type == "cuda":
            state = torch.cuda.get_rng_state(self.device)
            random["random.cuda"] = of_all_processes(state)
        if processes_here()[0] == 0:
            tensors = {f"model.{n}": t for n, t in self._weights().items()}
            for name, parameter in self._parameters():
                for key, kept in self.optimizer.state[parameter].items():
                    tensors[f"optimizer.{name}.{key}"] = kept
            tensors |= {name: torch.stack(s) for name, s in random.items()}
            tensors["random.batches"] = self.generator.get_state()
            tensors["losses"] = torch.tensor(self.losses, dtype=torch.float64)
            files.write(path, tensors, self.about)

    def resume(self, path: Path) -> None:
        """Go on from a checkpoint, which is judged before anything changes.

        Raises:
            FileNotFoundError: no such file.
            ValueError: a damaged file, or one of another run.
        """
        stored, about = files.read(path)
        self._judge(path, stored, about)
        self.model.load_state_dict(
            {name: stored[f"model.{name}"] for name in self._weights()},
            strict=True,
        )
        state = self.optimizer.state_dict()
        state["state"] = {
            n: {
                key: stored[f"optimizer.{name}.{key}"]
                for key in _kept_by(self.recipe)
            }
            for n, (name, _) in enumerate(self._parameters())
        }
        self.optimizer.load_state_dict(state)
        self.losses = stored["losses"].tolist()
        self.generator.set_state(stored["random.batches"])
        rank = processes_here()[0]
        # A copy: torch crashes on a part of a tensor.
        torch.set_rng_state(stored["random.cpu"][rank].clone())
        if self.device.type == "cuda":
            state_here = stored["random.cuda"][rank].clone()
            torch.cuda.set_rng_state(state_here, self.device)

    def _weights(self) -> dict[str, Tensor]:
        return self.model.state_dict()

    def _parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Names and parameters, in the optimiser's order."""
        names = {id(p): name for name, p in self.model.named_parameters()}
        groups = self.optimizer.param_groups
        return [(names[id(p)], p) for g in groups for p in g["params"]]

    def _judge(self, path: Path, stored: dict[str, Tensor], about: dict):
        """Raise if a checkpoint is not whole, or of another run."""
        for name, ours in self.about.items():
            if about.get(name) != ours:
                raise ValueError(
                    f"{path} is of another run; expected {name} "
                    + "; got ".join(_difference(ours, about.get(name)))
                )
        expected = {f"model.{n}": t for n, t in self._weights().items()}
        for name, parameter in self._parameters():
            for key, like in _kept_by(self.recipe).items():
                expected[f"optimizer.{name}.{key}"] = (
                    parameter if like else torch.tensor(0.0)
                )
        cpu, processes = torch.get_rng_state(), self.about["processes"]
        expected["random.batches"] = cpu
        expected["random.cpu"] = cpu.expand(processes, -1)
        if self.device.type == "cuda":
            card = torch.cuda.get_rng_state(self.device)
            expected["random.cuda"] = card.expand(processes, -1)
        done = stored.get("losses", torch.empty(0)).numel()
        done = min(max(done, 1), self.recipe.steps)
        expected["losses"] = torch.empty(done, dtype=torch.float64)
        for name in expected | stored:
            ours, theirs = (
                f"{tuple(t[name].shape)} {t[name].dtype}"
                if name in t
                else "none"
                for t in (expected, stored)
            )
            if ours != theirs:
                raise ValueError(
                    f"{path} cannot be resumed; expected {ours} as "
                    f"{files.shown(name)}; got {theirs}"
                )
        try:
            for state in (stored["random.batches"], *stored["random.cpu"]):
                torch.Generator().set_state(state.clone())
            for state in stored.get("random.cuda", ()):
                torch.Generator(self.device).set_state(state.clone())
        except RuntimeError as error:
            raise ValueError(
                f"{path} cannot be resumed; expected states of random "
                f"generators; got {error}"
            ) from None


def _kept_by(recipe: Recipe) -> dict[str, bool]:
    """What the optimiser keeps of a parameter, and if it has its shape."""
    one = torch.zeros(2, 1)
    tried = nn.ParameterList([one])
    optimizer = make_optimizer(tried, recipe)
    tried[0].grad = one
    optimizer.step()
    kept = optimizer.state[tried[0]]
    return {key: t.shape == one.shape for key, t in kept.items()}


def _difference(ours: object, theirs: object) -> tuple[str, str]:
    """Two descriptions, without what is equal in them."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        keys = [k for k in ours | theirs if ours.get(k) != theirs.get(k)]
        ours = {k: ours.get(k) for k in keys}
        theirs = {k: theirs.get(k) for k in keys}
    return files.shown(ours), files.shown(theirs)
