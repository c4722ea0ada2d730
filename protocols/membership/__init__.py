"""Membership: how clients learn which clients are up; each has its own view of the others.

`view` contains the common base, and the kind with announced joins and departures; `swim` detects
crashed clients by pings, `cyclon` keeps a random sample of all clients, and `active` contains the views that
use these two.
"""
