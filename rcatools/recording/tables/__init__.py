"""Tables of measurements that others made: read, cleaned with counts, brought to one long form."""

from rcatools.recording.tables.model import Request, Table
from rcatools.recording.tables.read import Source, read_tables

__all__ = ["Request", "Source", "Table", "read_tables"]
