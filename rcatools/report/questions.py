"""The notebooks of a report and what each one asks."""

from __future__ import annotations

QUESTIONS = {
    "00_preflight": "Which machine and code do these measurements come from, how quiet was it, and what could be seen?",
    "01_reproduce": "Is there a regression here, and how sure is that?",
    "02_profile_kernels": "Did the kernels themselves become slower, or the gaps between them?",
    "03_allocator": "What does the allocator keep for each stream, and who holds it?",
    "04_compare_fixes": "Which fix variant removes the slowdown, and what does it cost?",
    "05_findings": "Which cause stands, which falls, and what is still open?",
    "06_vime_decode": "What explains the gap between a clean checkout and the published rollout throughput, what does "
    "each part take away, and what does safety cost?",
}
# What the same notebooks ask where the suspect is a gain.
OF_A_GAIN = {
    "01_reproduce": "Is there a difference here, and how sure is that?",
    "04_compare_fixes": "Which safe form keeps the gain, and what does it give up?",
}
# What a report runs where investigation.yaml names no notebooks of its own.
GENERAL = tuple(QUESTIONS)[:6]
