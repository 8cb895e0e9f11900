"""The parameters of a notebook: read from its annotated cell, checked and converted before anything runs.

papermill itself takes an unknown name with a warning and writes NaN into the notebook's JSON; both turn
a typing mistake into a result about other data. Everything here happens before a kernel starts.
"""

from __future__ import annotations

import ast
import io
import json
import math
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rcatools.errors import InputError, UnknownNameError

MAX_NOTEBOOK_BYTES = 64 * 2**20
_SIMPLE = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}
_TRUE, _FALSE, _NONE = {"true", "1", "yes", "on"}, {"false", "0", "no", "off"}, {"none", "null", ""}


@dataclass(frozen=True)
class Parameter:
    """One declared parameter.

    Attributes:
        name: as written in the cell.
        kind: "str", "int", "float", "bool", "list", "dict", or "any" where the cell does not say.
        item: kind of a list's items ("any" where not said).
        optional: whether None is allowed.
        default: the literal in the cell; None where it is no literal.
        help: the comment behind it.
    """

    name: str
    kind: str
    item: str
    optional: bool
    default: Any
    help: str


@dataclass(frozen=True)
class NotebookParameters:
    """All declared parameters of one notebook; ``tagged`` tells whether it has a parameters cell."""

    notebook: str
    tagged: bool
    declared: Mapping[str, Parameter]


def read_notebook(path: Path) -> dict[str, Any]:
    """The JSON of a notebook file.

    Raises:
        InputError: the file is missing, too large, no JSON or no notebook of format 4.
    """
    try:
        if path.stat().st_size > MAX_NOTEBOOK_BYTES:
            raise InputError(f"{path} is larger than {MAX_NOTEBOOK_BYTES} bytes: clear its outputs first")
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"no notebook at {path}: give a path to an .ipynb file") from None
    except (UnicodeDecodeError, ValueError) as error:
        raise InputError(f"{path} is not a notebook ({error}): restore the file") from None
    if not isinstance(document, dict) or document.get("nbformat") != 4 or not _is_cell_list(document):
        raise InputError(f"{path} is not a notebook of format 4: convert it with 'jupyter nbconvert'")
    return document


def _is_cell_list(document: dict[str, Any]) -> bool:
    cells = document.get("cells")
    return isinstance(cells, list) and all(
        isinstance(cell, dict) and isinstance(cell.get("metadata", {}), dict) for cell in cells
    )


def read_parameters(path: Path) -> NotebookParameters:
    """Names, types, defaults and help of the cell tagged ``parameters``.

    Raises:
        InputError: the notebook cannot be read or its parameters cell is no valid Python.
    """
    cells = [
        cell
        for cell in read_notebook(path)["cells"]
        if cell.get("cell_type") == "code" and "parameters" in (cell.get("metadata", {}).get("tags") or [])
    ]
    if len(cells) > 1:
        raise InputError(f"{path.name} has {len(cells)} cells tagged 'parameters': keep one")
    if not cells:
        return NotebookParameters(path.name, False, {})
    source = cells[0].get("source", "")
    text = "".join(source) if isinstance(source, list) else str(source)
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise InputError(
            f"the parameters cell of {path.name} is no valid Python, line {error.lineno}: {error.msg}"
        ) from None
    comments = _comments(text)
    found: dict[str, Parameter] = {}
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            kind, item, optional = _annotation(node.annotation)
            name, value = node.target.id, node.value
        elif (
            isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        ):
            name, value, kind, item, optional = node.targets[0].id, node.value, "any", "any", True
        else:
            continue
        default = _literal(value)
        if kind == "any" and default is not None:
            kind = type(default).__name__ if type(default).__name__ in _SIMPLE else "any"
        found[name] = Parameter(
            name, kind, item, optional or default is None, default, comments.get(node.end_lineno or 0, "")
        )
    return NotebookParameters(path.name, True, found)


def check_values(notebook: NotebookParameters, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values converted to the declared types.

    Raises:
        UnknownNameError: a name the notebook does not declare; the message names the nearest one.
        InputError: a value of the wrong type, a value JSON cannot hold, or no parameters cell.
    """
    if values and not notebook.tagged:
        raise InputError(
            f"{notebook.notebook} has no cell tagged 'parameters': the values given would be overwritten "
            "by its own defaults; tag the cell that sets them"
        )
    checked = {}
    for name, value in values.items():
        if name not in notebook.declared:
            raise UnknownNameError(f"parameter of {notebook.notebook}", name, notebook.declared)
        checked[name] = convert(notebook.declared[name], value)
    return checked


def distribute(
    notebooks: Iterable[NotebookParameters], values: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Give each notebook those of the values that it declares.

    Returns:
        checked values by notebook name.

    Raises:
        UnknownNameError: a name that no notebook declares.
        InputError: a value of the wrong type.
    """
    books = list(notebooks)
    known = {name for book in books for name in book.declared}
    for name in values:
        if name not in known:
            raise UnknownNameError("notebook parameter", name, known)
    return {
        book.notebook: check_values(
            book, {name: value for name, value in values.items() if name in book.declared}
        )
        for book in books
    }


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """``name=value`` texts of a command line as a mapping.

    Raises:
        InputError: a text without ``=``, or a name given twice.
    """
    values: dict[str, str] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.strip().isidentifier():
            raise InputError(f"parameter {text!r} is not of the form name=value")
        if name.strip() in values:
            raise InputError(f"parameter {name.strip()!r} is given twice: give it once")
        values[name.strip()] = value
    return values


def convert(parameter: Parameter, value: Any) -> Any:
    """One value as the declared type; text from a command line is read as that type.

    Raises:
        InputError: the value does not fit or JSON cannot hold it.
    """
    where = f"parameter {parameter.name!r}"
    if value is None or (
        isinstance(value, str) and parameter.kind != "str" and value.strip().lower() in _NONE
    ):
        if parameter.optional:
            return None
        raise InputError(f"{where} must be of type {parameter.kind}, not empty")
    result = _as_kind(where, parameter.kind, value)
    if parameter.kind == "list" and parameter.item in _SIMPLE:
        result = [_as_kind(f"{where}, item {i + 1}", parameter.item, item) for i, item in enumerate(result)]
    _refuse_non_json(where, result)
    return result


def _as_kind(where: str, kind: str, value: Any) -> Any:
    if kind == "any":
        return _parse_json(value) if isinstance(value, str) else value
    if kind == "bool" and isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in _TRUE | _FALSE:
            return lowered in _TRUE
    elif kind in {"int", "float"} and not isinstance(value, bool):
        try:
            number = float(value)
            if kind == "float":
                return number
            if number.is_integer():
                return (
                    int(value)
                    if isinstance(value, str) and value.strip().lstrip("+-").isdigit()
                    else int(number)
                )
        except (TypeError, ValueError, OverflowError):
            pass
    elif kind == "str" and not isinstance(value, list | dict | bool):
        return str(value)
    elif kind == "list" and isinstance(value, str):
        parsed = _parse_json(value)
        return (
            parsed
            if isinstance(parsed, list)
            else [part.strip() for part in value.split(",") if part.strip()]
        )
    elif kind == "dict" and isinstance(value, str):
        value = _parse_json(value)
    if kind in _SIMPLE and isinstance(value, _SIMPLE[kind]) and (kind == "bool") == isinstance(value, bool):
        return value
    raise InputError(f"{where} must be of type {kind}, got {value!r}")


def _refuse_non_json(where: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where} is {value}: a notebook's JSON cannot hold it, give a finite number")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f"{where} has the key {key!r}: keys must be text")
            _refuse_non_json(f"{where}[{key!r}]", item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_non_json(where, item)
    elif not isinstance(value, str | int | float | bool | None):
        raise InputError(f"{where} is a {type(value).__name__}, which a notebook's JSON cannot hold")


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _annotation(node: ast.expr) -> tuple[str, str, bool]:
    """Kind, kind of the items, and whether None is allowed."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        sides = [_annotation(node.left), _annotation(node.right)]
        named = [side for side in sides if side[0] != "none"]
        optional = any(side[0] == "none" or side[2] for side in sides)
        return (*named[0][:2], optional) if len(named) == 1 else ("any", "any", optional)
    if isinstance(node, ast.Constant) and node.value is None:
        return "none", "any", True
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        item = node.slice.id if isinstance(node.slice, ast.Name) else "any"
        return (node.value.id, item, False) if node.value.id in _SIMPLE else ("any", "any", True)
    if isinstance(node, ast.Name) and node.id in _SIMPLE:
        return node.id, "any", False
    return "any", "any", True


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _comments(text: str) -> dict[int, str]:
    """Comment behind the code of each line, by line number."""
    return {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT
    }
