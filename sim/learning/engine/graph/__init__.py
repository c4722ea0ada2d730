"""The pending graph: what is to be computed."""
