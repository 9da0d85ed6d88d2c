"""Counts the lines of code in the Python files that the command line names.

A line counts if a token begins or continues on it that is neither a comment nor a part of a
docstring. A docstring is any statement that is only a string. The output is a JSON object, from
each path to its number of lines.
"""

from __future__ import annotations

import ast
import io
import json
import sys
import token
import tokenize

LAYOUT = frozenset(
    {tokenize.COMMENT, tokenize.NL, token.NEWLINE, token.INDENT, token.DEDENT, token.ENDMARKER},
)


def docstrings(text: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return where the docstrings of a file begin and end, each as row and column."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        end_row, end_column = node.end_lineno, node.end_col_offset
        if isinstance(node.value.value, str) and end_row is not None and end_column is not None:
            # Columns are in bytes here and in characters in a token; before a docstring there is
            # only white space, so its begin is the same in both.
            found.append(((node.lineno, node.col_offset), (end_row, end_column)))
    return found


def count(path: str) -> int:
    """Count the lines of a file that hold code."""
    with tokenize.open(path) as file:
        text = file.read()
    documented = docstrings(text)
    lines: set[int] = set()
    for one in tokenize.generate_tokens(io.StringIO(text).readline):
        is_documentation = any(begin <= one.start and one.end <= end for begin, end in documented)
        if one.type not in LAYOUT and not is_documentation:
            lines.update(range(one.start[0], one.end[0] + 1))
    return len(lines)


def main(paths: list[str]) -> int:
    """Count each file; the exit code is 1 for a file that is no Python."""
    counts = {}
    for path in paths:
        try:
            counts[path] = count(path)
        except (SyntaxError, tokenize.TokenError) as error:
            print(f"{path} is no Python: {error}", file=sys.stderr)
            return 1
    print(json.dumps(counts))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
