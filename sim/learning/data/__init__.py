"""Data sets: a class for each, with the keys of its section `[data]`, its shapes, and its reader."""
