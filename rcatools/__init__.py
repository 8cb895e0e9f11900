"""Root-cause investigation of GPU performance regressions."""

__version__ = "0.1.0"
