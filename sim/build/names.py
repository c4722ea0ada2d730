"""What the actors of a run are called."""


def client_name(index: int) -> str:
    """The actor name of client number `index`."""
    return f"client-{index}"
