"""Text from files made harmless: for Markdown on GitHub, for HTML, for plotly, for mermaid.

Every string of a recording, trace, snapshot or investigation file may be hostile: it may hold markup,
terminal escapes, invisible or direction-changing characters, mentions, issue references with closing
words, or somebody's user name and paths. Renderers pass every such string through one of the functions
here and write nothing else from files.
"""

from __future__ import annotations

import dataclasses
import html
import re
from collections.abc import Iterable, Mapping
from typing import Any

# ANSI: CSI and OSC sequences, and single-character escapes.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]+[0-~]|.)?",
    re.S,
)
# Letters and marks that show nothing; str.isprintable takes care of controls, bidi and zero-width characters.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_SPACE = re.compile(r"[\s\x85\u2028\u2029]+")

# A mail address, or a login as ssh and scp take it; "name@version" of a kernel or arm is neither.
_EMAIL = re.compile(
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+|(?<=ssh )[\w.+-]{1,64}@[\w-]{1,63}|[\w.+-]{1,64}@[\w-]{1,63}(?=:[/~.])",
    re.A,
)
_URL_LOGIN = re.compile(r"(?<=://)[^/\s@]{1,200}@")
_PATH = re.compile(
    r"(?<![\w.:/~])(?:file://)?(?:/(?:[^/\s\"'`|<>()\[\],;:]+/)+|[A-Za-z]:[\\/](?:[^\\/\s\"'|<>]+[\\/])*|\\\\[\w.$-]+\\(?:[^\\\s]+\\)*|~[\w-]*/(?:[^/\s]+/)*)"
    r"([^/\\\s\"'`|<>()\[\],;:]*)"
)
_HOME = re.compile(r"(?<![\w/])/(?:home|Users|root)(?:/[\w.-]+)?(?![\w/])")
_NAMES_PERSON = re.compile(
    r"(?:sudo_|ssh_|run_|os_|machine_)?(?:user|username|user_name|login|logname|host|hostname|host_name|nodename|fqdn|email)",
    re.I,
)
_PERSONAL_KEY = re.compile(rf"{_NAMES_PERSON.pattern}|home|home_dir|cwd|pwd", re.I)
_COMMON_WORDS = {
    "root",
    "user",
    "users",
    "home",
    "admin",
    "ubuntu",
    "runner",
    "jenkins",
    "localhost",
    "node",
    "host",
}

REMOVED = "[removed]"
_ZERO_WIDTH = "\u200b"


def clean(text: Any, limit: int = 2000) -> str:
    """One line of visible text: no controls, escapes, invisible or direction-changing characters."""
    line = str(text)[: 20 * limit]
    line = _ANSI.sub("", line)
    line = _SPACE.sub(" ", _INVISIBLE.sub("", line))
    line = " ".join("".join(filter(str.isprintable, line)).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def without_persons(text: str, names: Iterable[str] = ()) -> str:
    """The text without logins, home folders, absolute paths (only the last part stays) and given names."""
    text = _URL_LOGIN.sub("", text)
    text = _PATH.sub(lambda match: f"…/{match.group(1)}" if match.group(1) else "…/", text)
    text = _HOME.sub("…", text)
    text = _EMAIL.sub(REMOVED, text)
    for name in names:
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", REMOVED, text, flags=re.I)
    return text


def personal_names(document: Any) -> set[str]:
    """User and host names that a document tells under keys such as ``user`` or ``hostname``."""
    found: set[str] = set()
    if isinstance(document, Mapping):
        for key, value in document.items():
            if isinstance(value, str) and _NAMES_PERSON.fullmatch(str(key)):
                found.update(_name_parts(value))
            else:
                found |= personal_names(value)
    elif isinstance(document, list | tuple):
        for item in document:
            found |= personal_names(item)
    return found


def _name_parts(value: str) -> set[str]:
    value = clean(value, 200)
    parts = {value, value.split(".")[0]}
    return {part for part in parts if len(part) >= 3 and part.lower() not in _COMMON_WORDS}


def harmless(document: Any) -> Any:
    """A JSON document with every string cleaned, and what names persons and hosts taken out.

    Keys that hold personal names are dropped; numbers and structure stay.
    """
    return _harmless(document, sorted(personal_names(document), key=len, reverse=True))


def _harmless(value: Any, names: list[str]) -> Any:
    if isinstance(value, str):
        return without_persons(clean(value), names)
    if isinstance(value, Mapping):
        return {
            without_persons(clean(key, 200), names): _harmless(item, names)
            for key, item in value.items()
            if not (isinstance(item, str) and _PERSONAL_KEY.fullmatch(str(key)))
        }
    if isinstance(value, list | tuple):
        return [_harmless(item, names) for item in value]
    if dataclasses.is_dataclass(value):
        raise TypeError("give the JSON form of a record")
    return value


# --- Markdown -----------------------------------------------------------------------------------------

_ENTITY = {char: f"&#{ord(char)};" for char in "|\\`*~${}"} | {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_MENTION = re.compile(r"@(?=\w)")
_REFERENCE = re.compile(r"#(?=\d)|\b(GH)-(?=\d)", re.I)
_SCHEME = re.compile(r"(?i)\b(https?|ftp|mailto|file|data|javascript|vbscript)(?=:)")
_WWW = re.compile(r"(?i)\b(www)\.")
_SHA = re.compile(r"\b([0-9a-f]{7})(?=[0-9a-f]{0,33}\b)(?=[0-9]*[a-f])")
_LONE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_BLOCK_START = re.compile(r"^(#{1,6}|[-+=:]+|\d{1,9}[.)])(?=\s|$|[-=:])")
_BRACKETS = re.compile(r"\[(?=[\^!]|[ xX]\])|\](?=[(\[])")
# A link definition begins a line; the bracket may stand in an earlier part of it.
_DEFINITION = re.compile(r"^([^\[\]]*|\[[^\[\]]*)\](?=:)")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+ /=:-]*")


def md(text: Any, limit: int = 2000) -> str:
    """Text for a Markdown paragraph or table cell that GitHub shows as the same plain text.

    Character references keep markup from forming. Mentions, issue references, commit hashes and links are
    found by GitHub after that, in the rendered text, so a zero-width space parts them.
    """
    line = clean(text, limit)
    line = _MENTION.sub("@" + _ZERO_WIDTH, line)
    line = _REFERENCE.sub(lambda match: f"{match.group(0)}{_ZERO_WIDTH}", line)
    line = _SCHEME.sub(lambda match: match.group(1) + _ZERO_WIDTH, line)
    line = _WWW.sub(lambda match: f"{match.group(1)}{_ZERO_WIDTH}.", line)
    line = _SHA.sub(lambda match: match.group(1) + _ZERO_WIDTH, line)
    line = "".join(_ENTITY.get(char, char) for char in line)
    line = _BRACKETS.sub(lambda match: f"&#{ord(match.group(0))};", line)
    line = _DEFINITION.sub(lambda match: f"{match.group(1)}&#93;", line)
    line = _LONE_UNDERSCORE.sub("&#95;", line)
    return _BLOCK_START.sub(lambda match: "".join(f"&#{ord(char)};" for char in match.group(1)), line)


def md_code(text: Any, limit: int = 300) -> str:
    """A name in code type; GitHub looks for no mention and no reference inside.

    Names without special characters become an ordinary code span. Everything else becomes a ``<code>``
    element with character references, because a code span in a table cell cannot hold every character.
    """
    line = clean(text, limit) or "?"
    if _PLAIN_NAME.fullmatch(line):
        return f"`{line}`"
    return "<code>" + "".join(c if c.isalnum() or c in " ." else f"&#{ord(c)};" for c in line) + "</code>"


def md_block(text: Any, language: str = "", limit: int = 8000) -> str:
    """A fenced block whose fence is longer than any run of backticks inside."""
    lines = [clean(line, 4000) for line in str(text)[:limit].splitlines()]
    longest = max((len(run) for run in re.findall(r"`+", "\n".join(lines))), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([f"{fence}{language}", *lines, fence])


def md_link(label: Any, url: Any) -> str:
    """A link where the address is plain http(s); only the label otherwise."""
    address = web_address(url)
    return f"[{md(label)}]({address})" if address else md(label)


def web_address(url: Any) -> str | None:
    """The address if it is a plain web address without a login, else None."""
    text = clean(url, 500)
    return text if re.fullmatch(r"https?://[\w.-]+(?::\d+)?(?:/[\w./#?=&%+~-]*)?", text, re.A) else None


def mermaid(text: Any, limit: int = 60) -> str:
    """Text inside a quoted mermaid label: letters, digits and a few signs only."""
    return re.sub(r"[^\w .,:+%()/'…-]", " ", clean(text, limit)).replace("end", "en\u200bd").strip() or "-"


# --- plotly and spreadsheets ------------------------------------------------------------------------------


def plot_text(text: Any, limit: int = 120) -> str:
    """Text for plotly, which reads a subset of HTML in labels."""
    return html.escape(clean(text, limit), quote=False)


def cell_text(text: Any) -> str:
    """Text for a CSV cell: a spreadsheet takes a leading =, +, - or @ as a formula."""
    line = clean(text)
    return f"'{line}" if line[:1] in {"=", "+", "-", "@"} and not _is_number(line) else line


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
