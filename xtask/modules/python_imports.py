"""Prints which module of a package imports which.

The command line names the folder of the package. The output is a JSON object, from each module to
those of the package that it imports, sorted. Modules are named within the package, and the package
itself by the empty name. Imports inside functions count, and so do those for type checkers alone: a
module cannot be understood without what they name.
"""

from __future__ import annotations

import ast
import json
import sys
import tokenize
from pathlib import Path


def modules_of(package: Path) -> dict[str, Path]:
    """Return the files of a package by the names of their modules."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        names = path.relative_to(package).with_suffix("").parts
        found[".".join(names[:-1] if names[-1] == "__init__" else names)] = path
    return found


def imported(package: str, module: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of the package that one of them imports."""
    with tokenize.open(path) as file:
        tree = ast.parse(file.read(), str(path))
    own = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = [package, *filter(None, own.split("."))]
                if node.level > len(above):
                    raise SyntaxError(f"line {node.lineno} imports from above the package")
                base = ".".join([*above[: len(above) - node.level + 1], *filter(None, [node.module])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            inside, _, rest = name.partition(".")
            if inside != package:
                continue
            # The longest part of the name that is a module: what follows is something in it.
            while rest not in known:
                rest = rest.rpartition(".")[0]
            found.add(rest)
    return found - {module}


def main(folder: str) -> int:
    """Print the imports of a package; the exit code is 1 for a file that is no Python."""
    package = Path(folder)
    known = modules_of(package)
    imports = {}
    for module, path in known.items():
        try:
            imports[module] = sorted(imported(package.name, module, path, known))
        except SyntaxError as error:
            print(f"{path} cannot be read: {error}", file=sys.stderr)
            return 1
    print(json.dumps(imports))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
