"""Figures, Markdown for an issue, one HTML page, bundle."""
