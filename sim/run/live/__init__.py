"""The lives of clients and servers in virtual time."""
