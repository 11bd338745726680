"""The helper package of *From Averages to Attention*.

Pure functions stand at the bottom (`attention`, `masks`, `positions`), layers
on them (`layers`, with `cache` for earlier tokens), a model on those (`gpt`),
what it is trained on and how (`language`, `text`, `training`, `checkpoints`,
`command`), what it writes and how fast (`generate`, `fast`), other people's
models (`pretrained`, `weights`, `divergence`), teaching tools beside them
(`proof`, `tasks`, `mistakes`, `exercises`, `figures`, `notebook`).
The notebooks import it from beside them.
"""

__version__ = "0.1.0"
