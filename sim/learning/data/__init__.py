"""Data sets: one class each, with the keys of its section `[data]`, its shapes, and its reader."""
