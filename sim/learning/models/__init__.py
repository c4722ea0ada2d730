"""Models: a class for each, with the keys of its section `[model]`, the data that it fits, and its module."""
