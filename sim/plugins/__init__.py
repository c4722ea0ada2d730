"""User's code in a scenario: keys that may name it, loading, calling and validation."""
