"""The recording folder: schema, reader, crash-safe writer."""

from rcatools.recording.reader import Recording, open_recording
from rcatools.recording.schema import Manifest

__all__ = ["Manifest", "Recording", "open_recording"]
