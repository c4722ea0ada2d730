"""Actors that exchange messages: mailboxes, handlers, supervision, transports. No learning, no simulation."""
