"""Models: one class each, with the keys of its section `[model]`, the data that it fits, and its module."""
