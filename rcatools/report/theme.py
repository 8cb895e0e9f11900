"""Colours and type of figures and page: one restrained palette for light and dark.

Orange and blue stay apart under the common kinds of colour blindness; signs and words always repeat
what a colour says. Contrast of text against its background is at least 4.5 : 1.
"""

from __future__ import annotations

from dataclasses import dataclass

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'


@dataclass(frozen=True)
class Palette:
    """Named colours; ``series`` are the parts of bars and the lines of curves."""

    background: str
    panel: str
    ink: str
    muted: str
    line: str
    bad: str
    good: str
    calm: str
    open: str
    accent: str
    series: tuple[str, ...]

    def tone(self, name: str) -> str:
        """The colour of a tone; the accent for no tone."""
        return {"bad": self.bad, "good": self.good, "calm": self.calm, "open": self.open}.get(
            name, self.accent
        )


LIGHT = Palette(
    background="#ffffff",
    panel="#f5f7fa",
    ink="#1b2430",
    muted="#566374",
    line="#d9dfe7",
    bad="#b5410f",
    good="#0b6e63",
    calm="#566374",
    open="#7a5b00",
    accent="#1f5fa8",
    series=("#1f5fa8", "#c8561b", "#8a97a6", "#0b8577", "#7b5ea7"),
)
DARK = Palette(
    background="#12171e",
    panel="#1a212b",
    ink="#e4e9ef",
    muted="#9fabb9",
    line="#313b48",
    bad="#f29a6b",
    good="#5cc8b8",
    calm="#9fabb9",
    open="#d9b44a",
    accent="#7ab3ef",
    series=("#7ab3ef", "#f29a6b", "#8794a3", "#5cc8b8", "#b79ce0"),
)


def css_variables(palette: Palette) -> str:
    """The palette as CSS custom properties."""
    names = ("background", "panel", "ink", "muted", "line", "bad", "good", "calm", "open", "accent")
    plain = "".join(f"--{name}:{getattr(palette, name)};" for name in names)
    return plain + "".join(f"--s{i}:{colour};" for i, colour in enumerate(palette.series))
