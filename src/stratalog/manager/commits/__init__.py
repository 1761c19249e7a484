"""Commit staged pieces exactly once: plan, admit, apply, and replay what a crash interrupted."""
