"""Check batches before they are appended, and rebuild those that must change. No lock, no file."""
