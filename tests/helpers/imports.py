"""What a source imports of the house."""

import ast


def imported(source: str, rooms: set[str]) -> set[str]:
    """Which of the rooms a source imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{a.name}" for a in node.names}
            names |= whole & rooms or {node.module}
    return names & rooms
