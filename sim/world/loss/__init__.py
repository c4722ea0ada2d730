"""Loss of messages."""
