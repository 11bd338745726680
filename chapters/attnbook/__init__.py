"""The helper package of *From Averages to Attention*.

Pure functions stand at the bottom (`attention`, `masks`), layers on them
(`layers`), teaching tools beside them (`proof`, `tasks`, `mistakes`,
`exercises`, `figures`, `notebook`). The notebooks import it from beside them.
"""

__version__ = "0.1.0"
