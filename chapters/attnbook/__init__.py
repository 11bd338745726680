"""The helper package of *From Averages to Attention*.

Pure functions stand at the bottom (`attention`, `masks`, `positions`), layers
on them (`layers`), a model on those (`gpt`), what it is trained on and how
(`language`, `text`, `training`, `checkpoints`, `command`), teaching tools
beside them (`proof`, `tasks`, `mistakes`, `exercises`, `figures`, `notebook`).
The notebooks import it from beside them.
"""

__version__ = "0.1.0"
