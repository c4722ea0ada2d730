"""One run in virtual time: the clients, their training, the world around them, and the observer."""
