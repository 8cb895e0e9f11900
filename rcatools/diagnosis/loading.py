"""Reads investigation.yaml: every mistake is one line that names the place and, where there is one, the near name."""

from __future__ import annotations

import functools
import io
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import pandas as pd
import yaml

from rcatools.diagnosis.investigation import (
    ByDeltas,
    ByEffect,
    ByHypothesis,
    BySpeaksAbout,
    ClaimTable,
    Investigation,
    Spec,
    expectations,
    outcomes_of,
)
from rcatools.diagnosis.records import ClaimStatus, Mechanism
from rcatools.diagnosis.remarks import OPEN_OUTCOMES, placeholders
from rcatools.diagnosis.vocabulary import Quantity, Seen
from rcatools.errors import InputError, UnknownNameError, UnsafeInputError
from rcatools.recording.reader import file_sha256

MAX_FILE_BYTES = 2 * 2**20
MAX_TABLE_BYTES = 64 * 2**20
FILE_NAME = "investigation.yaml"
_MECHANISMS = {item.value for item in Mechanism}
_STATUSES = {item.value for item in ClaimStatus}
_TABLE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.csv")


class _Loader(yaml.SafeLoader):
    """Plain data only; "off" and dates stay text, a doubled key or an alias is an error."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.constructor.ConstructorError(
                None,
                None,
                "aliases are not read here: write the value out",
                self.peek_event().start_mark,  # type: ignore[no-untyped-call]
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key.value, str):
                raise yaml.constructor.ConstructorError(None, None, "a key must be text", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} stands twice", key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag not in {"tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"}
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))


def load_investigation(path: Path | str) -> Investigation:
    """Read an investigation from its folder or file, with the tables it names.

    Raises:
        InputError: the file is missing, is no YAML, or does not have the form of ``investigation.Spec``.
        UnknownNameError: a key, check, arm, observation, outcome or hypothesis that nobody declared.
        UnsafeInputError: the file is too large.
    """
    file = Path(path)
    file = file / FILE_NAME if file.is_dir() else file
    if not file.is_file():
        raise InputError(f"no investigation at {file}: give a folder with {FILE_NAME}")
    if file.stat().st_size > MAX_FILE_BYTES:
        raise UnsafeInputError(
            f"{file.name} is larger than {MAX_FILE_BYTES} bytes: it is not an investigation"
        )
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise InputError(f"{file.name} is not UTF-8 text ({error.reason}): save it as UTF-8") from None
    spec = parse_investigation(text, file.name)
    tables = _read_tables(spec, file.parent, file.name)
    sums = {name: file_sha256(file.parent / spec.tables[name]) for name in tables}
    return Investigation(spec, tables, file.name, sums)


def parse_investigation(text: str, source: str = FILE_NAME) -> Spec:
    """The typed form of an investigation's YAML text; errors as in ``load_investigation``."""
    try:
        raw = yaml.load(text, _Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        message = " ".join(str(error).replace(' in "<unicode string>",', ",").split())
        raise InputError(f"{source}: {message}") from None
    if not isinstance(raw, dict):
        raise InputError(f"{source} holds no mapping: see rcatools/diagnosis/investigation.py for its form")
    try:
        _refuse_unknown_keys(raw, msgspec.inspect.type_info(Spec), "", source)
        spec = msgspec.convert(raw, Spec)
    except RecursionError:
        raise InputError(f"{source}: something is nested too deeply to be an investigation") from None
    except msgspec.ValidationError as error:
        place, message = _locate(raw, msgspec.inspect.type_info(Spec), "") or ("", str(error))
        raise InputError(f"{source}: {place + ': ' if place else ''}{message}") from None
    _check_names(spec, source)
    return spec


def _refuse_unknown_keys(value: Any, form: msgspec.inspect.Type, place: str, source: str) -> None:
    form = _choose(value, form, place, source)
    if isinstance(form, msgspec.inspect.StructType) and isinstance(value, dict):
        known = {item.encode_name: item for item in form.fields}
        names = set(known) | ({form.tag_field} if form.tag_field else set())
        for key, item in value.items():
            if key not in names:
                raise UnknownNameError(f"key in {source} at {place or 'the top'}", str(key), names)
            if key in known:
                _refuse_unknown_keys(item, known[key].type, f"{place}.{key}".lstrip("."), source)
    elif isinstance(form, msgspec.inspect.DictType) and isinstance(value, dict):
        for key, item in value.items():
            _refuse_unknown_keys(item, form.value_type, f"{place}.{key}", source)
    elif isinstance(form, msgspec.inspect.ListType) and isinstance(value, list):
        for i, item in enumerate(value):
            _refuse_unknown_keys(item, form.item_type, f"{place}[{i}]", source)


def _choose(value: Any, form: msgspec.inspect.Type, place: str, source: str) -> msgspec.inspect.Type:
    """The member of a union that the value's tag, or its shape, picks."""
    if not isinstance(form, msgspec.inspect.UnionType):
        return form
    structs = [item for item in form.types if isinstance(item, msgspec.inspect.StructType)]
    lists = [item for item in form.types if isinstance(item, msgspec.inspect.ListType)]
    if isinstance(value, dict) and structs:
        tag_field = structs[0].tag_field
        if tag_field is None:
            return structs[0]
        tag = value.get(tag_field)
        tags = {str(item.tag): item for item in structs}
        if tag is None:
            raise InputError(f"{source}: {place} lacks '{tag_field}', one of {', '.join(sorted(tags))}")
        if tag not in tags:
            raise UnknownNameError(f"{tag_field} in {source} at {place}", str(tag), tags)
        return tags[tag]
    return lists[0] if isinstance(value, list) and lists else form


def _locate(value: Any, form: msgspec.inspect.Type, place: str) -> tuple[str, str] | None:
    """The innermost place whose value does not have its declared type, and the message."""
    form = _choose(value, form, place, "")
    if isinstance(form, msgspec.inspect.StructType) and isinstance(value, dict):
        for item in form.fields:
            if item.encode_name in value:
                found = _locate(value[item.encode_name], item.type, f"{place}.{item.encode_name}".lstrip("."))
                if found:
                    return found
            elif item.required:
                return place or "the top", f"lacks the required key '{item.encode_name}'"
        return _message(value, form.cls, place)
    if isinstance(form, msgspec.inspect.DictType) and isinstance(value, dict):
        pairs = [(item, f"{place}.{key}") for key, item in value.items()]
        return next((f for item, at in pairs if (f := _locate(item, form.value_type, at))), None)
    if isinstance(form, msgspec.inspect.ListType) and isinstance(value, list):
        pairs = [(item, f"{place}[{i}]") for i, item in enumerate(value)]
        return next((f for item, at in pairs if (f := _locate(item, form.item_type, at))), None)
    return _message(value, _plain_type(form), place)


def _plain_type(form: msgspec.inspect.Type) -> Any:
    simple = {
        msgspec.inspect.StrType: str,
        msgspec.inspect.FloatType: float,
        msgspec.inspect.IntType: int,
        msgspec.inspect.BoolType: bool,
        msgspec.inspect.NoneType: None,
        msgspec.inspect.DictType: dict,
        msgspec.inspect.ListType: list,
    }
    if isinstance(form, msgspec.inspect.LiteralType):
        return Literal[form.values]
    if isinstance(form, msgspec.inspect.StructType):
        return form.cls
    if isinstance(form, msgspec.inspect.UnionType):
        return functools.reduce(operator.or_, (_plain_type(item) for item in form.types))
    return simple.get(type(form), object)


def _message(value: Any, kind: Any, place: str) -> tuple[str, str] | None:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return place, re.sub(r" - at `\$.*`$", "", str(error))
    return None


def _check_names(spec: Spec, source: str) -> None:
    arms = set(spec.arms)
    for place, name in _arm_references(spec):
        if name not in arms:
            raise UnknownNameError(f"arm in {source} at {place}", name, arms)
    for place, name, expected in expectations(spec):
        if name not in spec.observations:
            raise UnknownNameError(f"observation in {source} at {place}", name, spec.observations)
        known = {*type(spec.observations[name]).OUTCOMES, *(OPEN_OUTCOMES if ".remarks[" in place else ())}
        for outcome in outcomes_of(expected):
            if outcome not in known:
                raise UnknownNameError(
                    f"outcome of check '{spec.observations[name].kind}' in {source} at {place}.{name}",
                    outcome,
                    known,
                )
    for place, name in placeholders(spec):
        if name not in spec.observations:
            raise UnknownNameError(f"observation in {source} at {place}", name, spec.observations)
    for name, check in spec.observations.items():
        companion = getattr(check, "recording", "")
        if companion and companion not in spec.companions:
            raise UnknownNameError(
                f"companion in {source} at observations.{name}", companion, spec.companions
            )
    hypotheses = _unique(spec.hypotheses, "hypotheses", source)
    claims = _unique(spec.claims, "claims", source)
    _unique(spec.links, "links", source)
    for i, claim in enumerate(spec.claims):
        if claim.cause and claim.cause not in hypotheses:
            raise UnknownNameError(f"hypothesis in {source} at claims[{i}].cause", claim.cause, hypotheses)
        judged = claim.judged
        if isinstance(judged, ByHypothesis) and judged.hypothesis not in hypotheses:
            raise UnknownNameError(f"hypothesis in {source} at claims[{i}]", judged.hypothesis, hypotheses)
        if isinstance(judged, BySpeaksAbout) and judged.claim not in claims:
            raise UnknownNameError(f"claim in {source} at claims[{i}]", judged.claim, claims)
        for status in claim.reading:
            if status not in _STATUSES:
                raise UnknownNameError(f"status in {source} at claims[{i}].reading", status, _STATUSES)
    for name, kinds in spec.plants.items():
        for kind in kinds:
            if kind not in _MECHANISMS:
                raise UnknownNameError(f"mechanism in {source} at plants.{name}", kind, _MECHANISMS)
    for name, file in spec.tables.items():
        if file and not _TABLE_NAME.fullmatch(file):
            raise InputError(f"{source}: tables.{name} must be the name of a CSV file in the same folder")
    if spec.published and spec.published not in spec.tables:
        raise UnknownNameError(f"table in {source} at published", spec.published, spec.tables)
    for name in spec.made_by:
        if name not in spec.tables:
            raise UnknownNameError(f"table in {source} at made_by", name, spec.tables)
    for place, name in _table_references(spec, ""):
        if name not in spec.tables:
            raise UnknownNameError(f"table in {source} at {place}", name, spec.tables)


def _unique(items: Any, place: str, source: str) -> set[str]:
    names = [item.id for item in items]
    twice = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if twice is not None:
        raise InputError(f"{source}: the id {twice!r} stands twice in {place}")
    return set(names)


def _arm_references(spec: Spec) -> list[tuple[str, str]]:
    found = [("effect.suspect", spec.effect.suspect), ("effect.baseline", spec.effect.baseline)]
    found += [("effect.repeat", name) for name in spec.effect.repeat]
    found += [("plants", name) for name in spec.plants]
    for key, check in spec.observations.items():
        if not getattr(check, "recording", ""):  # a companion has arms of its own
            found += [(f"observations.{key}", name) for name in check.arms()]
    for i, claim in enumerate(spec.claims):
        if isinstance(claim.judged, ByEffect):
            names = [claim.judged.arm, claim.judged.against]
            found += [(f"claims[{i}].judged", name) for name in names if name]
    return found


def _table_references(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every table that a quantity or a rule below ``value`` names, with its place."""
    if isinstance(value, msgspec.Struct):
        if isinstance(value, Quantity | ByDeltas | ClaimTable | Seen) and value.table:
            yield place, value.table
        for name in value.__struct_fields__:
            yield from _table_references(getattr(value, name), f"{place}.{name}".lstrip("."))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _table_references(item, f"{place}.{key}")
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from _table_references(item, f"{place}[{i}]")


def _read_tables(spec: Spec, folder: Path, source: str) -> dict[str, pd.DataFrame]:
    tables: dict[str, pd.DataFrame] = {}
    for name, file in spec.tables.items():
        if not file:
            continue
        path = folder / file
        if not path.is_file():
            raise InputError(f"{source}: tables.{name} names {file}, which is not beside it")
        if path.stat().st_size > MAX_TABLE_BYTES:
            raise UnsafeInputError(f"{file} is larger than {MAX_TABLE_BYTES} bytes")
        try:
            tables[name] = read_table(path)
        except (ValueError, UnicodeDecodeError) as error:
            raise InputError(f"{file} is not a readable CSV table ({str(error).splitlines()[0]})") from None
    return tables


def read_table(path: Path) -> pd.DataFrame:
    """A CSV table whose first lines may be comments that start with "#"; a "#" further on is text."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    comments = next((i for i, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return pd.read_csv(io.StringIO("".join(lines[comments:])))
