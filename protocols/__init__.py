"""What a client can do, and one module per method of collaborative learning."""
